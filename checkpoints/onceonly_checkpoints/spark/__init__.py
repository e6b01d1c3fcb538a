"""What Spark writes into a checkpoint: read, checked, put back."""
