"""Random schedules in the simulated world: drawn from a seed, played in one thread, shrunk when one fails."""
