"""The reference of Python: each public name once, made from the code."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from tests.core.test_public_calls import PACKAGES

import onceonly_lab
import onceonly_lab.conformance
import onceonly_sinks.sql
from onceonly import errors, protocol

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "reference" / "python"
BLOCK = re.compile(r"^::: ([\w.]+)\n((?: {4}.*\n)*)", re.MULTILINE)
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

PUBLIC = (*PACKAGES, errors, protocol, onceonly_sinks.sql, onceonly_lab, onceonly_lab.conformance)
"""What users, authors of sinks and tests of jobs import from."""

CONTRACT = "onceonly.protocol.sink"
"""The module whose text is shown: calls in their order."""


def in_navigation() -> list[Path]:
    """The pages in the order of the site."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    reference = next(part["Reference"] for part in nav if "Reference" in part)
    python = next(part["Python"] for part in reference if "Python" in part)
    return [ROOT / "docs" / page for entry in python for page in entry.values()]


def entries() -> Iterator[tuple[str, str, Any, dict[str, Any]]]:
    """The module, name, object and options of each entry."""
    for page in in_navigation():
        for path, options in BLOCK.findall(page.read_text()):
            module, _, name = path.rpartition(".")
            found = getattr(importlib.import_module(module), name)
            yield module, name, found, yaml.safe_load(options or "options: {}")["options"]


def where(module: str, name: str, found: Any) -> str:
    """One spelling of a name that several packages export: where a class or function is defined."""
    defined = inspect.isclass(found) or inspect.isroutine(found)
    return f"{found.__module__}.{found.__qualname__}" if defined else f"{module}.{name}"


def members(found: Any, options: dict[str, Any]) -> list[str]:
    """Names of a class that its entry shows."""
    shown = options.get("members", [])
    return [name for name in vars(found) if not name.startswith("_")] if shown is None else shown


def test_the_reference_has_each_public_name_once_and_no_other() -> None:
    public = {where(package.__name__, name, getattr(package, name)) for package in PUBLIC for name in package.__all__}
    names = Counter(
        where(module, name, found)
        for module, name, found, _ in entries()
        if not isinstance(found, ModuleType) or f"{module}.{name}" != CONTRACT
    )
    assert {name: count for name, count in names.items() if count > 1} == {}
    assert names.keys() == public


def test_the_reference_has_ten_pages_and_begins_with_exactly_once() -> None:
    assert sorted(in_navigation()) == sorted(PAGES.iterdir())
    assert len(in_navigation()) == 10
    assert next(entries())[:2] == ("onceonly", "exactly_once")


def test_an_entry_shows_members_that_its_class_has_and_no_private_one() -> None:
    wrong = [
        f"{name}.{member}"
        for _, name, found, options in entries()
        for member in members(found, options)
        if member.startswith("_") or not (hasattr(found, member) or member in getattr(found, "__annotations__", {}))
    ]
    assert wrong == []


def test_our_own_text_in_the_reference_is_short() -> None:
    texts = [BLOCK.sub("", CODE.sub("", page.read_text())) for page in in_navigation()]
    assert sum(len(text.split()) for text in texts) <= 500


def test_each_docstring_of_the_reference_begins_with_at_most_twelve_words() -> None:
    long, counted = [], 0
    for _, name, found, options in entries():
        for member in ["", *members(found, options)]:
            shown = inspect.getattr_static(found, member, None) if member else found
            shown = getattr(shown, "fget", None) or getattr(shown, "__func__", shown)
            if inspect.isclass(shown) or inspect.isroutine(shown):
                headline = re.split(r"(?<=[.:])\s|\n\n", inspect.getdoc(shown) or "")[0]
                counted += 1
                long += [f"{name}.{member}: {headline}"] * (not 0 < len(headline.split()) <= 12)
    assert counted > 200
    assert long == []
