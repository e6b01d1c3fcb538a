"""All that touches PySpark: the engine, its batches, frames, sources and sessions."""
