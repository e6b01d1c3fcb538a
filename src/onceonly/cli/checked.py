"""Checks as ``onceonly doctor`` and ``onceonly sink check`` print them, and the exit code that they mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from onceonly.audit.verdict import CLEAN, FINDINGS
from onceonly.cli.output import Output, emit_json, emit_table, on_terminal, plural, say
from onceonly.doctor import Check, State


def emit_checks(found: Sequence[Check], output: Output, **about: str) -> int:
    """Print checks and return the exit code: only a problem changes it.

    Args:
        found: in the order in which a query would run into them.
        output: a table, or JSON.
        about: what the JSON document says besides.
    """
    problems = sum(1 for check in found if check.state is State.PROBLEM)
    if output is Output.JSON:
        emit_json({**about, "problems": problems, "checks": [asdict(check) for check in found]})
    else:
        _show(found, problems)
    return FINDINGS if problems else CLEAN


def _show(found: Sequence[Check], problems: int) -> None:
    emit_table(("", "what", "seen"), _rows(found))
    for check in found:
        if check.remedy and check.state is not State.OK:
            say()
            code = f" {check.code}" if check.code else ""
            say(
                f"{check.state}{code} {check.name}: {check.said}",
                style="red" if check.state is State.PROBLEM else "yellow",
            )
            say(f"  next: {check.remedy}")
    say()
    say(plural(problems, "problem") if problems else "no problem found")


def _rows(found: Sequence[Check]) -> Iterator[tuple[object, ...]]:
    """On a terminal what several checks are about is named by the first of them; on a pipe each line stands alone."""
    grouped, last = on_terminal(), ""
    for check in found:
        yield check.state, "" if grouped and check.name == last else check.name, check.said
        last = check.name
