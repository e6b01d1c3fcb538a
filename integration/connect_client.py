"""A client of a Spark Connect server: starts one query through ``format("onceonly")``, imports nothing of ``onceonly``.

``python -m integration.connect_client TASK``: a JSON file with ``remote``, ``inbox`` and ``options``.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

SCHEMA = "id bigint, word string"


def main(argv: list[str]) -> None:
    """Run the task in ``argv[0]``; prints ``done`` when the query has ended well, else the error."""
    task = json.loads(Path(argv[0]).read_text())
    spark = SparkSession.builder.remote(task["remote"]).getOrCreate()
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(task["inbox"])
    writer = files.writeStream.format("onceonly").queryName("orders").options(**task["options"])
    query = writer.trigger(availableNow=True).start()
    print("started", flush=True)
    try:
        query.awaitTermination()
        ours = [name for name in sys.modules if name.startswith("onceonly")]
        print("done", ours, flush=True)
    except Exception as error:  # the server may be killed
        print(f"failed {type(error).__name__}: {error}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
