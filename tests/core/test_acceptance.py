"""What can be accepted, and what that covers: one table, which the documents show as it is."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.raising import ROOT
from tests.core.stories import at, batch, changed, cut, epochs, offer

from onceonly.errors import GapError, OverlapError, class_of
from onceonly.errors.codes import CATALOGUE
from onceonly.machine.acceptance import GAPS, KINDS, Stop, applicable, covers, duplicates_from, option, stop_of
from onceonly.machine.comparison import decide_batch
from onceonly.machine.facts import Refusal
from onceonly.machine.source_order import Order, order
from onceonly_checkpoints.model import Adoption, AdoptionKind, Slice, SourceIdentity, SourceOffsets

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "move-a-checkpoint.md"
RUNBOOK = PAGE.with_name("recovery-runbook.md")
END = at(20)


def stop(code: str, **named: object) -> Stop:
    return Stop(code, **{"first": 2, "last": 3, "offered": cut(10, 30), **named})  # type: ignore[arg-type]


PAIRS = [(kind, code) for kind, about in KINDS.items() for code in about.covers]


@pytest.mark.parametrize(("kind", "code"), [pair for pair in PAIRS if pair[0] != "start"])
def test_what_applies_to_a_refusal_covers_it(kind: str, code: str) -> None:
    refused = stop(code, sinks=("a",), versions=("7",), offered=cut(25, 30) if kind == "accept-loss" else cut(10, 30))
    accepted = applicable(kind, refused, END)
    assert accepted is not None
    assert covers(accepted, refused)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_covers_no_code_that_it_does_not_list(kind: str) -> None:
    everything = Adoption(kind, ("a",), 1, 99, ("99",))
    for code in CATALOGUE:
        assert covers(everything, stop(code, sinks=("a",))) is (code in KINDS[kind].covers), code


def test_a_refusal_comes_back_from_its_text() -> None:
    both = stop("E203", repeats=True, then=stop("E207", sinks=("a",), then=Stop("E209", ("b",), versions=("4",))))
    for refused in (stop("E207", sinks=("a", "b"), versions=("3", "7"), head=9), Stop("E206"), both):
        assert Stop.parse(refused.text) == refused


def test_a_batch_that_is_proven_to_repeat_epochs_is_not_gone_on_with_whatever_its_offsets_say() -> None:
    kind = AdoptionKind.CONTINUE
    plain, proven = (
        [applicable(kind, stop(code, repeats=known), END) for code in KINDS[kind].covers] for known in (False, True)
    )
    assert None not in plain
    assert set(proven) == {None}


def test_an_acceptance_is_spelled_as_it_is_typed() -> None:
    typed = shlex.split(option(Adoption(AdoptionKind.ACCEPT_LOSS, ("delta:t", "it's"), 3, 5)))
    assert typed == ["--accept-loss", "3..5", "--sink", "delta:t", "--sink", "it's"]
    assert (
        option(Adoption(AdoptionKind.ACCEPT_CHANGE, ("delta:t",), versions=("12",)))
        == "--accept-change --sink delta:t@12"
    )
    assert option(Adoption(AdoptionKind.KEEP_RECOMPUTED_STATE, (), 4, 4)) == "--keep-recomputed-state 4"
    assert option(Adoption(AdoptionKind.ACCEPT_STATE_LOSS)) == "--accept-state-loss"


def test_a_batch_repeats_every_epoch_that_ends_after_its_start() -> None:
    slices = {1: cut(None, 10), 2: cut(10, 20), 3: cut(20, 30)}
    assert [duplicates_from(at(start), slices) for start in (0, 9, 10, 19, 20)] == [1, 1, 2, 2, 3]
    assert duplicates_from(at(None), slices) == 1
    assert (duplicates_from(at(30), slices), duplicates_from(at(30), {})) == (3, 1)
    assert duplicates_from(at(10), {1: slices[1], 3: slices[3]}) == 2  # it begins in a hole of the records
    assert (
        duplicates_from(at(5), {2: slices[2], 3: slices[3]}) == 1
    )  # it begins in an epoch that is not recorded any more


def read(version: int, index: int, *, table: str = "t", first: bool = False) -> SourceOffsets:
    told = {"sourceVersion": 1, "reservoirId": table, "reservoirVersion": version, "index": index}
    return SourceOffsets.of({"0": json.dumps({**told, "isStartingVersion": first})})


def test_offsets_of_a_delta_source_are_a_place_in_its_log() -> None:
    assert order(read(5, 20), read(6, -1)) == Order.BEFORE
    assert order(read(6, -1), read(5, 20)) == Order.AFTER
    assert order(read(5, 20), read(5, 3)) == Order.AFTER
    assert order(read(5, 20), read(6, -1, table="another")) == Order.UNCLEAR
    assert order(read(5, 20, first=True), read(5, 3)) == Order.UNCLEAR  # files of a snapshot are numbered otherwise
    assert order(read(5, 20, first=True), read(6, -1)) == Order.BEFORE


def test_offsets_of_several_sources_are_ordered_by_those_that_differ() -> None:
    def of(*ends: int) -> SourceOffsets:
        return SourceOffsets.of({str(at): f'{{"events":{{"0":{end}}}}}' for at, end in enumerate(ends)})

    told = {
        ((5, 5), (5, 5)): Order.SAME,
        ((5, 5), (5, 6)): Order.BEFORE,
        ((6, 5), (5, 5)): Order.AFTER,
        ((4, 5), (5, 6)): Order.BEFORE,
        ((6, 5), (5, 6)): Order.UNCLEAR,
        ((5,), (5, 5)): Order.UNCLEAR,
    }
    assert {ends: order(of(*ends[0]), of(*ends[1])) for ends in told} == told


def test_a_batch_that_starts_further_on_in_a_delta_log_is_a_gap_and_never_only_a_repetition() -> None:
    one, two = epochs(10, 20)
    delta = (SourceIdentity("0", "t"),)
    (last,) = changed(two, written=Slice(one.written.end, read(5, 20)), sources=delta)
    gap = Slice(read(6, -1), read(9, -1))
    refused = decide_batch(batch(last, offer(gap, 2, sources=delta)))
    assert isinstance(refused, Refusal)
    assert refused.code == "E204"
    accepted = applicable(AdoptionKind.ACCEPT_LOSS, stop_of(refused, gap), last.written.end)
    assert accepted is not None
    assert accepted.offsets == Slice(read(5, 20), read(6, -1))
    assert applicable(AdoptionKind.ACCEPT_DUPLICATES, stop("E203", offered=gap), last.written.end) is None
    back = Slice(read(4, 30), read(9, -1))
    assert applicable(AdoptionKind.ACCEPT_DUPLICATES, stop("E203", offered=back), last.written.end) is not None


def test_the_page_lists_what_each_kind_covers() -> None:
    listed = {
        row[1]: (tuple(re.findall(r"E\d{3}", row[2])), row[3].strip())
        for row in re.finditer(r"^\| `--([a-z-]+)[^`]*` \| ([^|]*) \| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE)
    }
    assert listed == {kind: (about.covers, about.words) for kind, about in KINDS.items()}


def test_the_runbook_has_each_refusal_that_can_be_accepted_and_names_only_codes() -> None:
    rows = re.findall(r"^\| ((?:E\d{3}(?:, )?)+) \|", RUNBOOK.read_text(), re.MULTILINE)
    listed = [code for row in rows for code in row.split(", ")]
    assert len(listed) == len(set(listed))
    assert set(listed) <= set(CATALOGUE)
    assert {code for about in KINDS.values() for code in about.covers} <= set(listed)


def test_what_can_be_written_again_is_what_overlaps_and_what_lies_between_is_a_gap() -> None:
    doubled, lost = KINDS[AdoptionKind.ACCEPT_DUPLICATES].covers, KINDS[AdoptionKind.ACCEPT_LOSS].covers
    assert {code for code in CATALOGUE if code[0] == "E" and class_of(code) is OverlapError} == set(doubled)
    gaps = {code for code in CATALOGUE if code[0] == "E" and class_of(code) is GapError}
    assert set(GAPS) < gaps <= set(lost)  # input that is gone lies within a batch


ELSEWHERE = frozenset({AdoptionKind.START, AdoptionKind.CONTINUE})
"""Words that mean other things, too: only where a kind is asked for, they are one."""

ASKING = frozenset({"applicable", "accepts", "Adoption", "decided", "decision.decided", "acceptance.applicable"})


def loose_kinds(tree: ast.AST) -> Iterator[str]:
    """Kinds that are written as plain texts."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str() as text) if text in set(AdoptionKind) - ELSEWHERE:
                yield text
            case ast.Compare() if re.search(r"\bkind\b", ast.unparse(node)):
                yield from (one.value for one in ast.walk(node) if _is_elsewhere(one))
            case ast.Call(func=func, args=args) if ast.unparse(func).rpartition(".")[2] in ASKING:
                yield from (arg.value for arg in args if _is_elsewhere(arg))
            case _:
                pass


def _is_elsewhere(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in ELSEWHERE


def test_a_kind_is_a_value_wherever_the_product_asks_for_one() -> None:
    found = {
        (path.stem, text)
        for package in ("checkpoints/onceonly_checkpoints", "src/onceonly", "src/onceonly_lab", "sinks/onceonly_sinks")
        for path in (ROOT / package).rglob("*.py")
        for text in loose_kinds(ast.parse(path.read_text()))
        if not re.search("^class AdoptionKind", path.read_text(), re.MULTILINE)
    }
    assert found == {("tree", "drop-sink"), ("tree", "retire-writer")}  # names of commands


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('one.kind == "start"', ["start"]),
        ('one.kind in {"continue", "start"}', ["continue", "start"]),
        ('last.standing.accepts("start", FROM)', ["start"]),
        ('applicable("accept-loss", stop)', ["accept-loss"]),
        ('{"start": 1, "end": 2}["start"]', []),
        ("one.kind is AdoptionKind.START", []),
    ],
)
def test_a_kind_that_is_a_plain_text_is_noticed(text: str, found: list[str]) -> None:
    assert sorted(loose_kinds(ast.parse(text))) == found
