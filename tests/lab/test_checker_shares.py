"""What of an epoch is for which sink: decided where it was staged, and judged by what each sink shows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.lab.tale import Tale, write, written

from onceonly_lab.history import BAD, Kind, Mark, Part, Row

DECIDED = (Part("picked", ("a1", "a2")), Part(BAD, ("b1",)))
"""Of the rows a1, b1, a2, b2 one is bad, and the output wants two of the others."""

GOOD, PICKED, ASIDE = ("a1", "a2", "b2"), ("a1", "a2"), ("b1",)


def divided(*, settled: bool = True, memory: bool = False) -> Tale:
    """Two epochs into a sink of all good rows, one of the output and a quarantine; nothing is read yet."""
    tale = Tale("all", "some", "aside")
    tale.promising("some", output="picked").promising("aside", output=BAD)
    for number in (1, 2):
        tale.input(f"a{number}", f"b{number}", key="k")
    for sink in tale.held:
        tale.install(sink, 1)
    for number in (1, 2):
        said = {"manifest": None if memory else f"m{number}"}
        tale.stage(number, outputs=DECIDED) if not memory else tale.compute_in_memory(number, DECIDED)
        for sink in tale.held:
            tale.commit(sink, number, **said)
        tale.record(number)
        tale.offered(number)
    tale.settle(Kind.OK if settled else Kind.FAIL, None if settled else "E203")
    return tale


def shown(*identities: str) -> list[Row]:
    return [Row(identity, int(identity[1])) for identity in identities]


def anomalies(tale: Tale, **other: tuple[str, ...]) -> set[str]:
    """What is found where sinks show what they should, but for these."""
    tale.last_reads(
        **{
            sink: {"rows": shown(*other.get(sink, rows)), "markers": None}
            for sink, rows in (("all", GOOD), ("some", PICKED), ("aside", ASIDE))
        }
    )
    return tale.anomalies()


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("settled", [False, True])
def test_sinks_that_hold_what_is_for_them_are_clean(settled: bool, memory: bool) -> None:
    tale = divided(settled=settled, memory=memory)
    if not settled:
        tale.header = replace(tale.header, refusals=("E203",))
    assert anomalies(tale) == set()


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize(
    ("sink", "rows", "called"),
    [
        ("aside", (), "X-ASIDE"),
        ("aside", ("b1", "b1"), "X-ASIDE"),
        ("all", (*GOOD, "b1"), "X-ASIDE"),
        ("some", (*PICKED, "b1"), "X-ASIDE"),
        ("some", (*PICKED, "b2"), "X-CROSS"),
        ("some", ("a1", "b2"), "X-CROSS"),
        ("aside", (*ASIDE, "a1"), "X-CROSS"),
        ("some", ("a1",), "X-LOSS"),
        ("all", ("a1", "b2"), "X-TORN"),
        ("some", ("a1", "a1", "a2"), "X-DUP"),
    ],
)
def test_a_share_that_is_another_one_is_called_by_its_name_alone(
    sink: str, rows: tuple[str, ...], called: str, memory: bool
) -> None:
    assert anomalies(divided(memory=memory), **{sink: rows}) == {called}


@pytest.mark.parametrize(
    ("count", "filtered", "bad", "called"),
    [
        (1, 0, 1, set()),
        (1, 1, 1, {"X-BALANCE"}),
        (1, 0, 0, {"X-BALANCE"}),
        (1, None, 0, set()),
        (1, 0, None, set()),
        (None, 5, 5, set()),
    ],
)
def test_a_marker_accounts_for_all_rows_of_its_epoch(
    count: int | None, filtered: int | None, bad: int | None, called: set[str]
) -> None:
    tale = divided()
    tale.read("all", rows=shown("a1"), markers=[Mark(1, 1, count, None, filtered, bad)])
    assert anomalies(tale) == called


def test_a_finding_about_shares_names_rows_sink_and_epoch() -> None:
    tale = divided()
    tale.last_reads(
        all={"rows": shown(*GOOD, "b1"), "markers": None},
        some={"rows": shown(*PICKED), "markers": None},
        aside={"rows": shown(*ASIDE), "markers": None},
    )
    (finding,) = tale.judged().findings
    assert (finding.sink, finding.epoch, finding.what) == ("all", 1, "1 bad row among the good ones")
    assert finding.witnesses == ("b1",)


def test_other_expectations_give_other_good_rows_and_no_plan_that_changes() -> None:
    tale = divided()
    tale.stage(3 - 1, driver=2, digest="other", outputs=(Part(BAD, ("a2",)),))
    assert anomalies(tale) == set()


def test_rows_in_a_drivers_memory_are_shared_out_as_that_driver_has_staged_them() -> None:
    tale = Tale("all", "aside").promising("aside", output=BAD)
    tale.input("a1", "b1")
    for sink in tale.held:
        tale.install(sink, 1)
    tale.compute_in_memory(1, DECIDED)
    tale.compute_in_memory(1, (Part(BAD, ("a1",)),), driver=2)
    for sink in tale.held:
        tale.commit(sink, 1)
    tale.record(1)
    tale.offered(1)
    tale.settle()
    tale.last_reads(all={"rows": shown("a1")}, aside={"rows": shown("b1")})
    assert tale.anomalies() == set()


def test_of_an_epoch_that_is_recorded_a_sink_lacks_what_was_for_it() -> None:
    tale = divided(settled=False)
    tale.header = replace(tale.header, refusals=("E203",))
    tale.last_reads(all={"rows": shown(*GOOD), "markers": None}, some={"rows": []}, aside={"rows": shown(*ASIDE)})
    lost = [finding for finding in tale.judged().findings if finding.anomaly == "X-LOSS"]
    assert {one.witnesses for one in lost} == {("a1",), ("a2",)}


def test_an_epoch_that_was_never_sent_to_a_quarantine_leaves_only_its_bad_rows_to_miss() -> None:
    tale = Tale("all", "aside", refusals=("E203",)).promising("aside", output=BAD)
    tale.input("a1", "b1")
    tale.stage(1, outputs=DECIDED)
    tale.commit("all", 1, manifest="m1")
    tale.record(1)
    tale.settle(Kind.FAIL, "E203")
    tale.last_reads(all={"rows": shown("a1")}, aside={"rows": []})
    (finding,) = [one for one in tale.judged().findings if one.anomaly == "X-ASIDE"]
    assert finding.witnesses == ("b1",)


# ---- keys that come again


def repeated(*, once: bool = True) -> Tale:
    """Of three rows two have one key; the later one is in no epoch."""
    tale = written("pg", epochs=0, deterministic=True).promising("pg", once=once)
    for number, key in ((1, "k"), (2, "l"), (3, "k")):
        tale.input(f"a{number}", key=key)
    for number in (1, 2):
        write(tale, number)
    tale.commit("pg", 3, rows=(), landed=False)
    tale.marks["pg"][3] = Mark(3, 1, 0)
    tale.record(3)
    tale.marks["ledger"][3] = Mark(3)
    tale.settle()
    return tale


def test_a_row_whose_key_came_before_is_not_due() -> None:
    tale = repeated()
    tale.last_reads()
    assert tale.anomalies() == set()


def test_without_that_promise_it_is() -> None:
    tale = repeated(once=False)
    tale.last_reads()
    assert tale.anomalies() == {"X-LOSS"}


def test_a_key_of_which_no_row_stands_is_lost() -> None:
    tale = repeated()
    tale.last_reads(pg={"rows": shown("a2")})
    assert tale.anomalies() == {"X-LOSS"}


def test_two_rows_of_one_key_are_again() -> None:
    tale = repeated()
    tale.last_reads(pg={"rows": [Row("a1", 1), Row("a2", 2), Row("a3")]})
    (finding,) = tale.judged().findings
    assert (finding.anomaly, finding.what, finding.witnesses) == (
        "X-AGAIN",
        "1 key with more than one row",
        ("a1", "a3"),
    )
