"""The sinks of the page "How to write a sink": its blocks with classes, run as a reader would, and the example."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "how-to-write-a-sink.md"
EXAMPLE = DOCS / "examples" / "folder_sink.py"
_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)


def _run() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": __name__}
    for block in _BLOCK.finditer(PAGE.read_text()):
        if "SQLiteHarness" not in names:
            exec(compile(block["code"], str(PAGE), "exec"), names)
    return names


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_folder_sink", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_names = _run()
SQLiteSink: Any = _names["SQLiteSink"]
SQLiteHarness: Any = _names["SQLiteHarness"]

_example: Any = _loaded()
FolderSink: Any = _example.FolderSink
FolderHarness: Any = _example.FolderHarness
