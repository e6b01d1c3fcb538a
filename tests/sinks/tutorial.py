"""The sinks that the page "How to write a sink" builds: its blocks with classes, run as a reader would."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "how-to-write-a-sink.md"
_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)


def _run() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": __name__}
    for block in _BLOCK.finditer(PAGE.read_text()):
        if "SQLiteHarness" not in names or "\nclass Folder" in block["code"]:
            exec(compile(block["code"], str(PAGE), "exec"), names)
    return names


_names = _run()
SQLiteSink: Any = _names["SQLiteSink"]
SQLiteHarness: Any = _names["SQLiteHarness"]
FolderSink: Any = _names["FolderSink"]
FolderHarness: Any = _names["FolderHarness"]
