"""Value types, ledger, and readers of Spark's checkpoint. Imports nothing of ours."""
