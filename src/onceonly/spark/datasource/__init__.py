"""Data source ``format("onceonly")``: task writer, and commit without a session."""
