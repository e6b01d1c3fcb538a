"""Codes are compared by plan where plans of one line are known, else by what their users call them, else not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onceonly_checkpoints import chain
from onceonly_checkpoints.code_version import Code, Compared, PlanFingerprint, compare, version_kept
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, Lineage, ResumePoint
from onceonly_checkpoints.model import Slice, SourceOffsets

PLAN = PlanFingerprint(1, "4.2", "3.11", "0" * 16, "1" * 16)
OTHER = replace(PLAN, plan="2" * 16)
BODY = replace(PLAN, functions="2" * 16)
UPGRADED = (replace(OTHER, spark="4.3"), replace(OTHER, python="3.12"), replace(OTHER, format=2))


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (Code(plan=PLAN), Code(plan=PLAN), Compared.SAME),
        (Code(plan=PLAN), Code(plan=OTHER), Compared.CHANGED),
        (Code(plan=PLAN), Code(plan=BODY), Compared.CHANGED),
        (Code("a", PLAN), Code("b", PLAN), Compared.SAME),
        (Code("a", PLAN), Code("a", OTHER), Compared.CHANGED),
        (Code("a"), Code("a", PLAN), Compared.SAME),
        (Code("a"), Code("b"), Compared.CHANGED),
        (Code("a", PLAN), Code("b"), Compared.CHANGED),
        (Code(plan=PLAN), Code(), Compared.NOT_COMPARABLE),
        (Code("a"), Code(), Compared.NOT_COMPARABLE),
        (Code(plan=PLAN), Code("a"), Compared.NOT_COMPARABLE),
        (Code(), Code("a", PLAN), Compared.SAME),
        (Code(), Code(), Compared.SAME),
    ],
)
def test_codes_are_compared_by_plan_else_by_version_else_not_at_all(before: Code, now: Code, said: Compared) -> None:
    assert compare(before, now) is said


@pytest.mark.parametrize("upgraded", UPGRADED, ids=["Spark", "Python", "format"])
def test_an_upgrade_alone_never_changes_the_code(upgraded: PlanFingerprint) -> None:
    assert compare(Code(plan=PLAN), Code(plan=upgraded)) is Compared.NOT_COMPARABLE
    assert compare(Code("a", PLAN), Code("a", upgraded)) is Compared.SAME
    assert compare(Code("a", PLAN), Code("b", upgraded)) is Compared.CHANGED


def test_a_version_that_was_kept_for_another_plan_is_known() -> None:
    assert version_kept(Code("a", PLAN), Code("a", OTHER))
    assert not version_kept(Code("a", PLAN), Code("a", PLAN))
    assert not version_kept(Code("a", PLAN), Code("b", OTHER))
    assert not version_kept(Code("", PLAN), Code("", OTHER))


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (Code(), "unknown code"),
        (Code("a"), "version a"),
        (Code("", PLAN), f"plan 1-4.2-3.11-{'0' * 16}-{'1' * 16}"),
        (Code("a", replace(PLAN, functions="")), f"version a (plan 1-4.2-3.11-{'0' * 16})"),
    ],
)
def test_a_code_is_named_by_what_is_known_of_it(code: Code, text: str) -> None:
    assert code.text == text


def test_the_chain_is_that_of_the_rows_whatever_code_wrote_them() -> None:
    here = Slice(SourceOffsets.of({"0": None}), SourceOffsets.of({"0": "1"}))
    plain = Lineage("q", "r", "file:/ck", 0, 1, 2)
    noted = replace(plain, version="a", plan=PLAN)
    by = [
        Epoch(1, here, "", "", Digest(1), "s", (("a", 1),), batch, carried=ResumePoint(batch))
        for batch in (plain, noted)
    ]
    assert chain.link(by[0]) == chain.link(by[1])
    assert noted.to_json() != plain.to_json()
    assert Lineage.from_json(noted.to_json()) == noted
