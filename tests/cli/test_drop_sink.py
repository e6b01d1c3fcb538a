"""A sink that is taken out first gets what it lacks; what it cannot get is counted, named, given up, and audited."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.conftest import Run, assert_answerless, document
from tests.cli.test_quarantine_command import Aside, Start
from tests.cli.test_ways_out import obeys, printed
from tests.core.several import crashed

from onceonly.cli.recover import removal
from onceonly.errors import IdentityError
from onceonly.faults import Point
from onceonly.runtime import sink_gaps


@pytest.fixture
def behind(tmp_path: Path) -> Aside:
    """Epoch 2 is in the sink of good rows, and its two bad ones are staged and in no sink."""
    aside = Aside(tmp_path)
    crashed(Start(aside), Point.COMMIT_AFTER, 1)
    return aside


def goes_on(aside: Aside) -> None:
    aside.driver().writes(3, table=pa.table({"id": range(20, 30)}))


def left_out(aside: Aside) -> str:
    """What the query says that is started without its quarantine."""
    store = aside.stores.pop("b")
    with pytest.raises(IdentityError) as error:
        goes_on(aside)
    aside.stores["b"] = store  # it lies where it lay
    assert error.value.code == "E213"
    return str(error.value)


def bad_rows(aside: Aside) -> list[int]:
    [quarantine] = [sink for sink in aside.sinks_open() if sink.id == "memory:b"]
    return sorted(row["hash"] // 7 for row in quarantine.rows())


def audited(run: Run, aside: Aside) -> tuple[str, set[str]]:
    """The first line of an audit, and the codes of what it found."""
    words = ("audit", "--query", "orders", "--ledger", str(aside.root / "ledger.db"))
    found = {one["code"] for one in document(run(*words, "-o", "json"))["findings"]}
    return run(*words).stdout.splitlines()[0], found


def unstaged(aside: Aside) -> None:
    shutil.rmtree(aside.root / "staging")


def test_a_sink_that_is_behind_is_brought_level_before_it_goes(run: Run, behind: Aside) -> None:
    said = left_out(behind)
    assert said.index("onceonly recover resolve") < said.index("give it back") < said.index("drop-sink")
    plan = obeys(run, said, "drop-sink")
    assert "memory:b first to epoch 2, 2 rows" in plan
    assert "it misses everything after epoch 2" in plan
    assert len(bad_rows(behind)) == 4
    del behind.stores["b"]
    goes_on(behind)
    spoken, codes = audited(run, behind)
    assert "EXACTLY ONCE" in spoken
    assert codes == {"A116"}


def test_the_way_that_is_printed_first_brings_every_row(run: Run, behind: Aside) -> None:
    said = left_out(behind)
    assert run(*printed(said, "recover resolve"), "--yes").exit_code == 0
    assert len(bad_rows(behind)) == 4
    assert "recover resolve" not in left_out(behind)
    obeys(run, left_out(behind), "drop-sink")


def test_rows_that_cannot_be_brought_are_counted_named_and_given_up(run: Run, behind: Aside) -> None:
    said = left_out(behind)
    unstaged(behind)
    refused = run(*printed(said, "drop-sink"), "--yes")
    assert_answerless(
        refused, "memory:b lacks epoch 2 (2 rows), which no other sink holds and nothing brings", "--accept-loss 2..2"
    )
    assert len(bad_rows(behind)) == 2
    too_few = [word if word != "2..2" else "1..1" for word in printed(refused.stderr, "drop-sink")]
    assert_answerless(run(*too_few, "--yes"), "--accept-loss 2..2")
    plan = obeys(run, refused.stderr, "drop-sink")
    assert "it misses epoch 2 (2 rows) and all after it" in plan
    del behind.stores["b"]
    goes_on(behind)
    head = behind.ledger.epochs("orders", 3, 3)[0].epoch.adoption
    assert head is not None
    assert (head.first, head.last, head.rows) == (2, 2, 2)
    assert "(rows of epoch 2 given up, accepted)" in audited(run, behind)[0]


def test_a_sink_that_does_not_answer_goes_by_what_it_confirmed(run: Run, behind: Aside) -> None:
    said = left_out(behind)
    del behind.stores["b"]
    gc.collect()
    refused = run(*printed(said, "drop-sink"), "--yes")
    assert_answerless(refused, "lacks epoch 2 (2 rows)")
    obeys(run, refused.stderr, "drop-sink")
    assert "rewind" not in refused.stderr  # it cannot be brought level where it cannot be found
    goes_on(behind)


def test_an_answer_that_was_lost_is_no_row_that_is_missing(run: Run, tmp_path: Path) -> None:
    aside = Aside(tmp_path)
    crashed(Start(aside), Point.COMMIT_AFTER, 2)  # both sinks hold epoch 2, and the ledger does not know it
    assert "brings" not in obeys(run, left_out(aside), "drop-sink")
    del aside.stores["b"]
    goes_on(aside)
    assert audited(run, aside)[1] == {"A116"}


def test_a_loss_counts_the_rows_of_the_sinks_that_lack_them(run: Run, behind: Aside) -> None:
    """Eight good rows and two bad ones: the sink that is behind lacks two."""
    unstaged(behind)
    with pytest.raises(IdentityError) as error:
        goes_on(behind)
    assert error.value.code == "E219"
    assert "give up 1 epoch, 2 rows" in str(error.value)
    assert "accept-loss of epoch 2 (2 rows) in memory:b" in obeys(run, str(error.value), "adopt")


@pytest.mark.parametrize(
    "broken", ["it does not look, so it neither heals nor counts", "it counts and keeps no record"]
)
def test_an_acceptance_that_does_not_count_is_called_by_the_audit(
    run: Run, behind: Aside, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """A mutant: drop-sink as it was, and one that asks for the range and forgets it."""
    said = left_out(behind)
    unstaged(behind)
    command = [*printed(said, "drop-sink"), "2..2"]
    if broken == "it does not look, so it neither heals nor counts":
        command.pop()
        monkeypatch.setattr(sink_gaps, "stand", lambda *_: sink_gaps.Stand(2, 2))  # it takes the newest for granted
    else:
        record = removal._decided
        monkeypatch.setattr(removal, "_decided", lambda typed, _: record(typed, sink_gaps.Lacking()))
    assert run(*command, "--yes").exit_code == 0
    del behind.stores["b"]
    goes_on(behind)
    assert audited(run, behind)[1] == {"A116", "A195"}
