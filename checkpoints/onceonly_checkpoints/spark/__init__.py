"""Read, verify and rebuild the files of a Spark checkpoint."""
