"""Input files of epochs are found again by the hash of their list, where nothing else tells them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.core.stories import epochs, recorded

from onceonly.runtime.ledger_sync import find, listed_in
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.model import InputFile, Slice, SourceIdentity, SourceOffsets

AGES = {"a": 1, "b": 2, "c": 3, "d": 3, "e": 5, "f": 6}


def read(line: Sequence[str], *, listed: Sequence[int] = (), entries: int = 1) -> list[EpochRecord]:
    """A record for each word of one-letter names, which its epoch read as one entry of the source's log."""
    made = []
    for at, (epoch, names) in enumerate(zip(epochs(*range(10, 10 * len(line) + 10, 10)), line, strict=True)):
        files = tuple(InputFile(f"file:///in/{name}", AGES.get(name, 9), at, "0") for name in names)
        source = SourceIdentity("0", "files:FileStreamSource[file:/in]", chain.inputs(files))
        first, last = (None if not at else f'{{"logOffset":{at - 1}}}'), f'{{"logOffset":{at + entries - 1}}}'
        slice_ = Slice(SourceOffsets.of({"0": first}), SourceOffsets.of({"0": last}))
        record = recorded(replace(epoch, sources=(source,), written=slice_))
        made.append(replace(record, files=files if at in listed else ()))
    return made


def aged(directory: str) -> list[tuple[str, int]]:
    assert directory == "file:/in"
    return [(f"file:///in/{one}", AGES[one]) for one in AGES]


def test_lists_are_found_by_age_and_only_where_their_hash_says_so() -> None:
    told = {
        ("a", "b", "c"): ["a", "b", "c"],
        ("ab", "cd", "ef"): ["ab", "cd", "ef"],
        ("ad", "bc"): [None, None],  # not neighbours by age
        ("b", "a"): ["b", "a"],  # one alone may be any
        ("az", "b"): [None, "b"],  # a file is gone
    }
    found = {}
    for line in told:
        records = read(line)
        lists = find(records, aged)
        names = [lists.get(record.epoch.number) for record in records]
        found[line] = [files and "".join(file.path[-1] for file in files) for files in names]
        assert all(file.log_offset == number - 1 for number, files in lists.items() for file in files)
    assert found == told


def test_lists_that_are_known_are_left_out_and_no_list_is_guessed_over_several_entries() -> None:
    assert [*find(read(["ab", "c", "d"], listed=[1]), aged)] == [1, 3]
    assert find(read(["ab"], entries=2), aged) == {}
    assert find([recorded(epochs(10)[0])], aged) == {}


def test_a_directory_is_listed_as_spark_takes_it(tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    (tmp_path / "_hidden").mkdir()
    for at, name in enumerate(("day=1/late file.json", "early.json", "_SUCCESS", ".x.crc", "_hidden/a.json")):
        (tmp_path / name).write_text("{}")
        os.utime(tmp_path / name, (1_700_000_009 - at,) * 2)
    there = [(path.rpartition(tmp_path.name)[2], age) for path, age in listed_in(f"file:{tmp_path}")]
    assert there == [("/early.json", 1_700_000_008_000), ("/day=1/late%20file.json", 1_700_000_009_000)]
    assert listed_in("s3a://bucket/in") == ()
