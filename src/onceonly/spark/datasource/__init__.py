"""``format("onceonly")``: what tasks write, and what the process that commits knows of its query, without a session."""
