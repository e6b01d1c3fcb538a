"""A simulated world of frozen values and pure steps, in which the production coordinator is run."""
