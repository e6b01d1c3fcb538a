"""The memory: what Spark and onceonly have promised. A leaf that imports nothing of ours."""
