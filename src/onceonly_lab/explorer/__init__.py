"""Every world within a bound, breadth first, over the production coordinator."""
