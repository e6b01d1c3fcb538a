"""One answer to "is this a URL" wherever a place is named, and what is neither a path nor a URL is refused by name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from onceonly import Storage, exactly_once
from onceonly.errors import ConfigurationError
from onceonly.protocol.registry import sink_from_address
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.storage import UnreachableStorage, half_url, is_local, open_storage, resolved, scheme_of
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.memory import MemorySink

SCHEMES = {
    "/lake/orders": "",
    "orders": "",
    "run-1:2026/orders": "",
    "C:/lake": "",
    "file:/lake": "file",
    "file:///lake": "file",
    "file:lake": "file",
    "s3://bucket/orders": "s3",
    "S3A://bucket/orders": "s3a",
    "dbfs:/mnt/orders": "dbfs",
    "hdfs:///orders": "hdfs",
}


def test_a_place_is_a_url_or_a_path() -> None:
    assert {place: scheme_of(place) for place in SCHEMES} == SCHEMES
    assert {place for place in SCHEMES if is_local(place)} == {
        p for p, scheme in SCHEMES.items() if scheme in ("", "file")
    }
    assert [place for place in SCHEMES if half_url(place)] == ["dbfs:/mnt/orders"]


def test_what_is_written_in_its_place_is_a_place() -> None:
    for place in ("dbfs:/mnt/orders", "s3:/bucket/orders", "abfss:/orders"):
        said = half_url(place)
        assert re.findall(r"[\w.]*/\S*[^;,\s]", said)
        assert not any(half_url(one) for one in re.findall(r"[\w.]*:?/\S*[^;,\s]", said))


@pytest.mark.parametrize(
    "make",
    [
        DeltaSink,
        lambda place: sink_from_address(f"delta:{place}"),
        lambda place: exactly_once(MemorySink(), storage=Storage(staging=place)),
        lambda place: exactly_once(MemorySink(), storage=Storage(ledger=place)),
        lambda place: SqlLedger(place).open(),
        open_storage,
    ],
    ids=[
        "path",
        "address, and so --into and --sink",
        "staging",
        "ledger",
        "ledger of a command",
        "checkpoint of a command",
    ],
)
def test_letters_and_one_slash_are_refused_by_name(
    make: Callable[[str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ConfigurationError, UnreachableStorage, ValueError), match="dbfs"):
        make("dbfs:/mnt/orders")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["a%20b", "file:///lake/a%2Fb"])
def test_a_delta_path_that_deltalake_would_decode_is_refused(place: str) -> None:
    with pytest.raises(ConfigurationError, match=r"choose a path without it, such as .*/a_b"):
        DeltaSink(place)
    assert DeltaSink("50%/a b")


def test_a_place_has_one_spelling_when_it_is_compared(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    here = str((tmp_path / "lake").resolve())
    spelled = [tmp_path / "lake", tmp_path / "link", tmp_path / "lake" / ".." / "link", (tmp_path / "link").as_uri()]
    assert {resolved(os.fspath(place)) for place in spelled} == {here}
    assert {resolved(f"{s}://user:pw@bucket/orders{end}") for s in ("s3", "s3a") for end in ("", "/")} == {
        "s3://bucket/orders"
    }
