"""The command line as a program that a fork server has loaded: most of a short command's life is importing."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence

from onceonly import faults


def come_up() -> None:
    """Load what commands load; but deltalake, which starts threads as soon as it is looked at."""
    for name in (
        "pandas",
        "pyarrow.parquet",
        "pyspark.sql.pandas.types",
        "onceonly.api.wrapper",
        "onceonly.cli.app",
        "onceonly.replay",
        "onceonly_sinks.postgres",
    ):
        importlib.import_module(name)


def main(argv: Sequence[str]) -> int:
    """Be the command that ``argv[0]`` says: a JSON object of ``words``, ``cwd`` and the whole of ``env``."""
    told = json.loads(argv[0])
    os.environ.clear()
    os.environ.update(told["env"])
    os.chdir(told["cwd"])
    sys.argv = ["onceonly", *told["words"]]
    sys.modules["__main__"].__package__ = None  # a program's name is looked for there first
    sys.path[:0] = [one for one in told["env"].get("PYTHONPATH", "").split(os.pathsep) if one and one not in sys.path]
    # What an import of ``faults`` does, which here was long ago.
    if wished := told["env"].get("ONCEONLY_FAULT"):
        faults.arm_from_environment(wished)
    try:
        importlib.import_module("onceonly.cli").main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
