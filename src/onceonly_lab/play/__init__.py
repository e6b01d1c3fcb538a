"""A schedule through one loop: drivers around the production runner, in a simulated world or on real stores."""
