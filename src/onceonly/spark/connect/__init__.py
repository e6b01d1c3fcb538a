"""Spark Connect: the engine, and what runs in the server's process."""
