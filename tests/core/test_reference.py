"""The reference of Python: each public name once, made from the code."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import Counter
from pathlib import Path

from tests.core.test_public_calls import PACKAGES

from onceonly import errors

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "api.md"
BLOCK = re.compile(r"^::: ([\w.]+)\n((?:    .*\n)*)", re.MULTILINE)
LIST = re.compile(r"(?<!inherited_)members: *\[([^\]]*)\]")

BESIDE = {"TooLargeForDriver", "InFiles", "Span", "replayed"}
"""Of the contract of a sink and of replays, whose packages export them nowhere."""


def listed() -> Counter[str]:
    """Names that the page shows, without whole modules."""
    names: Counter[str] = Counter()
    for module, options in BLOCK.findall(PAGE.read_text()):
        members = LIST.search(options)
        if module.rpartition(".")[2][:1].isupper() or not options.count("members"):
            names[module.rpartition(".")[2]] += 1
        else:
            found = members[1].split(",") if members else re.findall(r"- (\w+)", options)
            names.update(name.strip() for name in found)
    return names


def test_the_reference_has_each_public_name_once_and_no_other() -> None:
    public = {
        name
        for package in (*PACKAGES, importlib.import_module("onceonly.replay"))
        for name in package.__all__
        if inspect.isclass(found := getattr(package, name)) or inspect.isroutine(found)
    }
    names = listed()
    assert {name: count for name, count in names.items() if count > 1} == {}
    assert public - names.keys() == set()
    contract = {"onceonly.protocol", "onceonly_sinks.sql", "onceonly_lab.conformance"}
    exported = {name for package in contract for name in importlib.import_module(package).__all__}
    modules = {module.rpartition(".")[2] for module, _ in BLOCK.findall(PAGE.read_text())}
    assert names.keys() - public - exported - modules - set(dir(errors)) - BESIDE == set()
    assert next(iter(names)) == "exactly_once"
