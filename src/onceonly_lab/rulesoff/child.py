"""Child script: switch rules off, then search one world.

Rules are switched off in the source that Python imports.

``child.py RULES WORLD [PLACE [MOST]]``: rules by name, with commas between them; the scene, case or seed to look at;
how much is told at most. The last line of its output is JSON.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any


def _rules_module() -> ModuleType:
    """The finder of rules, loaded by itself: the product must not be imported before its rules are off."""
    path = Path(__file__).with_name("rules.py")
    spec = importlib.util.spec_from_file_location("_rules", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["_rules"] = module
    spec.loader.exec_module(module)
    return module


class _Without(SourceFileLoader):
    """Loads a module from another text than its file's."""

    text: str

    def get_code(self, fullname: str) -> Any:
        """Compile the text; nothing of it is cached."""
        return compile(self.text, self.path, "exec")


class _Finder(MetaPathFinder):
    def __init__(self, texts: dict[str, tuple[str, str]]) -> None:
        self._texts = texts

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """A spec for the modules whose rules are off."""
        if fullname not in self._texts:
            return None
        text, origin = self._texts[fullname]
        loader: Loader = _Without(fullname, origin)
        loader.text = text  # type: ignore[attr-defined]
        return ModuleSpec(fullname, loader, origin=origin)


def _install(names: frozenset[str]) -> None:
    rules_module = _rules_module()
    texts: dict[str, tuple[str, str]] = {}
    package = next(Path(entry) for entry in sys.path if (Path(entry) / "onceonly" / "machine").is_dir())
    for module in rules_module.MODULES:
        path = package.joinpath(*module.split(".")).with_suffix(".py")
        texts[module] = (rules_module.without(module, names, path.read_text(encoding="utf-8")), str(path))
    sys.meta_path.insert(0, _Finder(texts))


def main(names: str, world: str, case_id: str = "", most: str = "1") -> None:
    """Switch the rules off, and search."""
    _install(frozenset(names.split(",")))
    logging.disable(logging.CRITICAL)
    from onceonly_lab.rulesoff.trial import searched

    print(json.dumps([notice.to_json() for notice in islice(searched(world, case_id), int(most))]))


if __name__ == "__main__":
    main(*sys.argv[1:])
