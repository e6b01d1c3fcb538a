"""PySpark code: engine, batches, frames, sources and sessions."""
