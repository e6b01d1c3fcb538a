"""The recorder outlives its victims: what was answered is in the file, whole lines only, in order."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceonly_lab.history import Entry, Header, Kind, Op, Promise, UnreadableHistory, load
from onceonly_lab.history.recorder import Line, Recorder

HEADER = Header((Promise("s"),))

VICTIM = """
import sys
from onceonly_lab.history import Entry, Kind, Op
from onceonly_lab.history.recorder import Line
line = Line(sys.argv[1])
number = 0
while True:
    number += 1
    line.append(Entry("victim", Kind.INVOKE, Op.COMMIT, epoch=number))
    print(number, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


@pytest.fixture
def recorder(path: Path) -> Iterator[Recorder]:
    with Recorder(path, HEADER) as made:
        yield made


def epochs(path: Path, actor: str) -> list[int | None]:
    return [entry.epoch for entry in load(path).entries if entry.actor == actor]


@pytest.mark.kill
def test_a_killed_victim_loses_nothing_that_was_answered(recorder: Recorder, path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", VICTIM, recorder.address], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    answered = [int(child.stdout.readline()) for _ in range(200)]
    os.kill(child.pid, signal.SIGKILL)
    answered += [int(line) for line in child.stdout.read().splitlines()]
    child.stdout.close()
    assert child.wait() == -signal.SIGKILL
    recorder.append(Entry("nemesis", Kind.KILL))

    written = epochs(path, "victim")
    assert written[: len(answered)] == answered
    # One more may have been written whose answer the victim did not live to report.
    assert written in (answered, [*answered, len(answered) + 1])


def test_half_a_line_is_never_written(recorder: Recorder, path: Path) -> None:
    host, port = recorder.address.split(":")
    with socket.create_connection((host, int(port))) as victim:
        victim.sendall(Entry("victim", Kind.START).text.encode())
        victim.shutdown(socket.SHUT_WR)
        assert victim.recv(1) == b""
    assert load(path).entries == ()


def test_an_entry_is_in_the_file_when_its_writer_goes_on(recorder: Recorder, path: Path) -> None:
    with Line(recorder.address) as line:
        for number in range(5):
            line.append(Entry("d", Kind.OK, Op.RECORD, epoch=number))
            assert epochs(path, "d")[-1] == number


def test_lines_of_many_writers_stay_whole_and_each_in_its_order(recorder: Recorder, path: Path) -> None:
    def write(actor: str) -> None:
        with Line(recorder.address) as line:
            for number in range(100):
                line.append(Entry(actor, Kind.OK, Op.RECORD, epoch=number, note="x" * 500))

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [epochs(path, name) for name in "abcd"] == [list(range(100))] * 4


def test_times_are_the_recorders_unless_the_entry_brings_its_own(recorder: Recorder, path: Path) -> None:
    recorder.append(Entry("d", Kind.START))
    recorder.append(Entry("d", Kind.START, time=99.0))
    first, second = (entry.time for entry in load(path).entries)
    assert first is not None
    assert 0 <= first < 60
    assert second == 99.0


def test_a_line_that_is_no_entry_is_refused_and_not_written(recorder: Recorder, path: Path) -> None:
    with Line(recorder.address) as line:
        with pytest.raises(UnreadableHistory, match="refused: invoke without an 'op'"):
            line.append(Entry("d", Kind.INVOKE))
        line.append(Entry("d", Kind.START))
    assert [entry.kind for entry in load(path).entries] == [Kind.START]


def test_a_history_is_never_written_over(recorder: Recorder, path: Path) -> None:
    with pytest.raises(FileExistsError):
        Recorder(path, HEADER)


def test_a_closed_recorder_hangs_up(path: Path) -> None:
    with Recorder(path, HEADER) as recorder:
        line = Line(recorder.address)
        line.append(Entry("d", Kind.START))
    with pytest.raises((ConnectionError, UnreadableHistory)):
        line.append(Entry("d", Kind.START))
    line.close()
    assert len(load(path).entries) == 1
