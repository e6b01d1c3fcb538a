"""Quality of rows: outputs, routes, expectations, quarantine and deduplication."""
