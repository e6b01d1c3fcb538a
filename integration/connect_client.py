"""A client of a Spark Connect server: starts one query through ``format("onceonly")``, imports nothing of ``onceonly``.

``python -m integration.connect_client TASK``: a JSON file with ``remote``, ``inbox``, ``options`` of the sink and,
where the files are not those of an ``Inbox``, ``files``: their format, schema and options.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

PLAIN = {"format": "parquet", "schema": "id bigint, word string", "options": {}}


def main(argv: list[str]) -> None:
    """Run the task in ``argv[0]``; prints ``done`` when the query has ended well, else the error."""
    task = json.loads(Path(argv[0]).read_text())
    spark = SparkSession.builder.remote(task["remote"]).getOrCreate()
    given = task.get("files", PLAIN)
    reader = spark.readStream.format(given["format"]).schema(given["schema"]).options(**given["options"])
    rows = reader.option("maxFilesPerTrigger", 1).load(task["inbox"])
    writer = rows.writeStream.format("onceonly").queryName("orders").options(**task["options"])
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
