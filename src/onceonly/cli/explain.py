"""``onceonly explain``: the page of a code, or the list of all."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Annotated, cast

import typer

from onceonly.audit.catalogue import RULES, Rule
from onceonly.cli.options import OutputOption
from onceonly.cli.output import Output, emit_json, emit_pairs, emit_table
from onceonly.errors import class_of
from onceonly.errors.codes import CATALOGUE, Entry
from onceonly.errors.options import misused
from onceonly_checkpoints.install import LAB, hint

CodeArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[CODE]",
        help="E203, A121, X-LOSS ..., or a word: then the codes that speak of it; without it all codes.",
    ),
]

GROUP = "onceonly.pages"
"""Entry-point group: name = whose codes, value = a function that gives their pages, in the order to list them."""

Pages = Mapping[str, Mapping[str, str]]
"""Code to page; a page is title to text, in reading order, and has a ``what``."""

_DETAIL = re.compile(r"\{(\w+)(?::[qi])?\}")
_MOSTLY = re.compile(r"\{\w+:([^{}]{2,})\}")
"""A detail for which the text has words of its own."""


def command(code: CodeArgument = None, output: OutputOption = Output.TABLE) -> None:
    """Explain a code, or list them all."""
    if code is None:
        _emit(list(map(page_of, all_codes())), output)
        return
    if _texts(_name(code)) is None and (spoken := _speaking_of(code)):
        _emit(spoken, output)
        return
    page = page_of(code)
    if output is Output.JSON:
        emit_json(page)
    else:
        emit_pairs(page.items())


@cache
def published() -> Pages:
    """Pages of the packages that are installed: those of the lab's anomalies."""
    pages: dict[str, Mapping[str, str]] = {}
    for point in entry_points(group=GROUP):
        pages |= cast("Callable[[], Pages]", point.load())()
    return pages


def page_of(code: str) -> dict[str, str]:
    """The page of one code; details that only an occurrence knows stand in angle brackets.

    Args:
        code: with or without ``ONCE-``.

    Raises:
        ConfigurationError: E110, no such code, or one of the lab, which is not installed.
    """
    name = _name(code)
    texts = _texts(name)
    if texts is None and name.startswith("X-") and not published():
        raise misused(
            f"{name} would be an anomaly that the fault lab found, and the lab is not installed.",
            f"anomalies are explained by the package {LAB}",
            hint("lab"),
        )
    if texts is None:
        raise misused(
            f"There is no code {code!r}.",
            "codes are E101 to E604 (errors), W701 and up (warnings), A101 and up (audit), D101 and up (doctor), "
            "X-... (lab)",
            "see all of them: onceonly explain",
        )
    return {"code": name, **{title: _DETAIL.sub(r"<\1>", _MOSTLY.sub(r"\1", text)) for title, text in texts.items()}}


def _name(code: str) -> str:
    return code.strip().upper().removeprefix("ONCE-")


def _speaking_of(word: str) -> list[dict[str, str]]:
    pattern = re.compile(rf"\b{re.escape(word.strip())}", re.IGNORECASE)
    pages = map(page_of, all_codes()) if re.fullmatch(r"[^\W\d]{3,}", word.strip()) else ()
    return [page for page in pages if pattern.search("\n".join(page.values()))]


def _texts(name: str) -> Mapping[str, str] | None:
    """Title to text, in reading order; ``None`` if there is no such code."""
    if name in CATALOGUE:
        return _of_error(name, CATALOGUE[name])
    if name in RULES:
        return _of_rule(RULES[name])
    return _of_doctor().get(name) or published().get(name)


def _of_doctor() -> Pages:
    # It loads the protocol of sinks, which the page of an error does not need.
    from onceonly.doctor import PAGES

    return {
        code: {"what": _what(page.what, page.matter), "why it matters": page.matter, "next": page.remedy}
        for code, page in PAGES.items()
    }


def _what(what: str, matter: str) -> str:
    """A page without an occurrence has no problem to tell, so it says what all of them have in common."""
    return f"{matter.partition('. ')[0].rstrip('.')}: {what}" if _DETAIL.fullmatch(what) else what


def _of_error(code: str, entry: Entry) -> dict[str, str]:
    page = {
        "what": _what(entry.what, entry.matter),
        "why it matters": entry.matter,
        "likely cause": entry.cause,
        "next": entry.remedy,
    }
    if code[0] == "E":
        page["a restart alone"] = "can help" if class_of(code).retry else "does not help"
    return {**page, "more": entry.more} if entry.more else page


def _of_rule(rule: Rule) -> dict[str, str]:
    return {
        "what": rule.title,
        "severity": rule.severity,
        "verdict": str(rule.verdict) if rule.verdict else "unchanged",
        "why it matters": rule.meaning,
        "next": rule.remedy.replace("{where}", "").replace("{ledger}", ""),
    }


def all_codes() -> tuple[str, ...]:
    """Every code that has a page: errors and warnings, findings of audit and doctor, anomalies of the lab."""
    return (*CATALOGUE, *RULES, *_of_doctor(), *published())


def _emit(pages: list[dict[str, str]], output: Output) -> None:
    if output is Output.JSON:
        emit_json({"codes": pages})
        return
    emit_table(("code", "what"), ((page["code"], page["what"]) for page in pages))
