"""A history is one text; what cannot be understood is said with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceonly_lab.history import (
    Entry,
    Header,
    History,
    Kind,
    Mark,
    Op,
    Promise,
    Range,
    Row,
    Situation,
    UnreadableHistory,
    load,
    parse,
)

FULL = Entry(
    "driver",
    Kind.INVOKE,
    Op.COMMIT,
    incarnation=2,
    time=1.5,
    sink="postgres:t",
    epoch=3,
    slice=(Range("events-0", 10, 20), Range("events-1", 4, 4)),
    rows=(Row("a"), Row("b", 3), Row("c", None, "k"), Row("d", 3, "k", "ff")),
    count=4,
    digest="4:1:2",
    generation=7,
    manifest="stage/3",
    markers=(Mark(3), Mark(4, 7, 10, "x")),
    final=True,
    leaks=("prepared transaction 812",),
    fault="commit.sent:kill",
    code="E203",
    anomaly="X-AUDIT",
    note='quoted " and ünïcode\n',
)
HEADER = Header((Promise("postgres:t", ordered=True), Promise("kafka:t", whole=False)), "M9", 7, False)
START = '{"history":1,"sinks":[{"sink":"s"}]}\n'

_names = st.text(max_size=5)
_rows = st.builds(Row, _names, st.none() | st.integers(), st.none() | _names, st.none() | _names)
_entries = st.builds(
    Entry,
    _names,
    st.sampled_from([Kind.INVOKE, Kind.OK, Kind.FAIL, Kind.INFO]),
    st.sampled_from(Op),
    sink=st.none() | _names,
    rows=st.none() | st.lists(_rows, max_size=3).map(tuple),
    markers=st.none() | st.lists(st.builds(Mark, st.integers()), max_size=2).map(tuple),
    time=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    note=_names,
)


def test_every_field_survives_the_text() -> None:
    history = History(HEADER, (FULL, Entry("nemesis", Kind.FAULT, fault="restore", sink="postgres:t")))
    assert parse(history.text) == history


def test_a_header_keeps_what_the_run_had_to_reach() -> None:
    header = Header((Promise("s"),), requires=(Situation.ZOMBIE,), refusals=("E203",))
    assert parse(History(header, ()).text).header == header


@given(st.lists(_entries, max_size=4))
def test_any_history_survives_the_text(entries: list[Entry]) -> None:
    history = History(HEADER, tuple(entries))
    assert parse(history.text) == history


def test_what_is_at_its_default_is_left_out() -> None:
    assert Entry("d", Kind.START).text == '{"actor":"d","kind":"start"}'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1: the history is empty"),
        ('{"history":1,"sinks":[]}', "line 1: cut off before its end"),
        ('{"history":2,"sinks":[]}\n', "line 1: not a history of version 1: 'history' is 2"),
        ('{"history":1}\n', "line 1: no 'sinks'"),
        ('{"history":1,"sinks":[{"sink":5}]}\n', "line 1: 'sinks': 'sink': wants a text, not 5"),
        ("[]\n", r"line 1: wants an object, not \[\]"),
        (START + '{"actor":"d"}\n', "line 2: no 'kind'"),
        (START + '{"actor":"d","kind":"gone"}\n', "line 2: 'kind': 'gone' is not a valid Kind"),
        (START + '{"actor":"d","kind":"ok"}\n', "line 2: ok without an 'op'"),
        (START + '{"actor":"d","kind":"start","op":"commit"}\n', "line 2: start with an 'op'"),
        (START + '{"actor":"d","kind":"read"}\n', "line 2: a read without a 'sink'"),
        (START + '{"actor":"d","kind":"start","colour":1}\n', "line 2: unknown field 'colour'"),
        (START + '{"actor":"d","kind":"start","epoch":true}\n', "line 2: 'epoch': wants an integer, not True"),
        (START + '{"actor":"d","kind":"start","time":"1"}\n', "line 2: 'time': wants a number, not '1'"),
        (START + '{"actor":"d","kind":"start","final":1}\n', "line 2: 'final': wants true or false, not 1"),
        (START + '{"actor":"d","kind":"start","rows":5}\n', "line 2: 'rows': wants a list, not 5"),
        (START + '{"actor":"d","kind":"start","rows":[[]]}\n', "line 2: 'rows': wants .identity, epoch, key, value."),
        (START + '{"actor":"d","kind":"start","slice":{"0":[1]}}\n', "line 2: 'slice': wants .start, end."),
        (START + '{"actor":"d","kind":"start"}\n{"act', "line 3: cut off before its end"),
        (START + '{"actor":"d","kind":"start"}\nnot json\n', "line 3: Expecting value"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(text: str, words: str) -> None:
    with pytest.raises(UnreadableHistory, match=words):
        parse(text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_bytes(b"\xff")
    with pytest.raises(UnreadableHistory, match=r"h\.jsonl: not UTF-8 from byte 0 on"):
        load(path)
    path.write_text("{}\n")
    with pytest.raises(UnreadableHistory, match=r"h\.jsonl: line 1: not a history"):
        load(path)
