"""Every way out that a refusal prints, followed to its end on real stores, and the page of the docs that tells it."""
