"""``format("onceonly")`` before Spark runs: what Spark imports, and what is said of options."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from onceonly.api.arguments import Storage
from onceonly.api.datasource import TaskFiles
from onceonly.api.format_options import OURS, Options
from onceonly.errors import OnceOnlyError
from onceonly.protocol.registry import keyed

SAID = {"to": "delta:/lake/orders", "queryname": "orders", "checkpointlocation": "/cp/orders"}


def refused(said: dict[str, str]) -> OnceOnlyError:
    with pytest.raises(OnceOnlyError) as caught:
        Options.parse(said).arguments()
    return caught.value


def said_by(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


# ---- what Spark imports at each look-up


def test_spark_finds_the_package_by_its_name_and_the_class_by_its_own() -> None:
    assert said_by("import pyspark_onceonly as p; print(p.DefaultSource.name())") == "onceonly"


def test_it_imports_cleanly_where_pyspark_has_no_data_sources_and_is_refused_where_it_is_used() -> None:
    without = "import sys; sys.modules['pyspark.sql.datasource'] = None; import pyspark_onceonly as p; "
    assert said_by(without + "print(hasattr(p, 'Other'))") == "False"
    assert "ONCE-E113" in said_by(without + "\ntry:\n    p.DefaultSource\nexcept Exception as error:\n    print(error)")


def test_it_imports_without_pyspark() -> None:
    assert said_by("import sys; sys.modules['pyspark'] = None; import pyspark_onceonly; print('yes')") == "yes"


def loaded(before: str, what: str) -> set[str]:
    """Modules that statements load in a fresh process that has run others before."""
    script = f"import sys; {before}; known = set(sys.modules); {what}; print(*(set(sys.modules) - known))"
    return set(said_by(script).split())


def test_of_the_library_it_imports_nothing_until_it_is_used() -> None:
    """Spark imports it at each look-up: one small module costs it nothing that could be noticed."""
    assert loaded("import pyspark.sql.datasource", "import pyspark_onceonly") == {"pyspark_onceonly"}


def packages(modules: set[str]) -> set[str]:
    """Packages of modules but for the standard library's, one of whose modules has the machine in its name."""
    found = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    return {name for name in found if not name.startswith("_sysconfigdata")}


def test_the_library_imports_no_other_package_and_no_pyspark_whatever_name_is_asked_of_it() -> None:
    assert packages(loaded("pass", "import onceonly")) == {"onceonly"}
    names = "import onceonly; [getattr(onceonly, name) for name in onceonly.__all__]"
    assert packages(loaded("pass", names)) == {"onceonly", "onceonly_checkpoints"}


# ---- options


def test_options_say_what_exactly_once_would_have_been_given() -> None:
    given = Options.parse({**SAID, "key": "id,line", "ledger": "/l.db", "pipeline": "p"}).arguments()
    assert (given.name, given.storage.ledger, given.ids) == ("p", "/l.db", ("delta:orders",))
    assert given.sinks[0].address == "delta:/lake/orders#key=id&key=line"
    assert given.storage == Storage(ledger="/l.db", staging="/cp/orders.onceonly.staging")
    assert given.recovery.on_refresh == "stop"


def test_a_refresh_replaces_where_every_sink_can_take_rows_away() -> None:
    assert Options.parse({**SAID, "on_refresh": "replace"}).arguments().recovery.on_refresh == "replace"
    error = refused({**SAID, "on_refresh": "replace", "to": '["delta:/lake/a", "kafka:h:9092/t"]'})
    assert error.code == "E247"
    assert "kafka:t cannot replace" in str(error)


def test_several_sinks_are_a_json_list_in_commit_order() -> None:
    given = Options.parse({**SAID, "to": '["delta:/lake/a", "delta:/lake/b"]'}).arguments()
    assert given.ids == ("delta:a", "delta:b")


def test_a_connection_string_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_DSN", "postgresql://me:geheim@localhost/shop")
    given = Options.parse({**SAID, "to": "postgres:#orders?key=id", "dsn_env": "ORDERS_DSN"}).arguments()
    assert given.sinks[0].address.startswith("postgres:")
    assert "geheim" not in given.sinks[0].address
    assert "geheim" in (given.sinks[0].ledger_url or "")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"dns_env": "X"}, "no option dns_env (did you mean dsn_env?)"),
        ({"lineage": "http://marquez:5000"}, "no option lineage"),
        ({"dsn_env": "NOBODY_SET_THIS"}, "NOBODY_SET_THIS"),
        ({"to": "postgres:#orders"}, 'option("dsn_env", "ORDERS_DSN")'),
        ({"to": "postgres:postgresql://me:geheim@h/d#t"}, "dsn_env"),
        ({"to": "postgres:host=h password=geheim#t"}, "dsn_env"),
        ({"to": "kafka:h:9092/t?kafka.sasl.password=geheim"}, "dsn_env"),
        ({"ledger": "postgresql://me:geheim@h/d"}, "PGPASSWORD"),
        ({"to": ""}, "has no sink"),
        ({"to": "[1]"}, "JSON list of addresses"),
        ({"to": "[unclosed"}, "not the address of a sink"),
        ({"to": "17"}, "JSON list of addresses"),
        ({"to": "nowhere:x"}, "not the address of a sink"),
        ({"to": '["delta:/a", "delta:/b"]', "key": "id"}, "which of 2 sinks"),
        ({"to": "kafka:h:9092/t", "key": "id"}, "takes no key"),
        ({"key": "id,,line"}, "a list of names"),
        ({"deterministic": "yes"}, "deterministic is not true or false: 'yes'"),
        ({"on_refresh": "append"}, '"stop" or "replace"'),
        ({"checkpointlocation": ""}, "checkpointLocation"),
        ({"pipeline": " "}, "not blank"),
    ],
)
def test_what_cannot_mean_anything_is_refused_with_the_next_step(said: dict[str, str], words: str) -> None:
    error = refused({**SAID, **said})
    assert error.code == "E110"
    assert words in str(error)
    assert "geheim" not in str(error)


def test_a_stream_without_a_name_is_refused() -> None:
    assert refused({**SAID, "queryname": ""}).code == "E101"


def test_two_sinks_of_one_id_are_refused() -> None:
    assert refused({**SAID, "to": '["delta:/a/t", "delta:/b/t"]'}).code == "E102"


def test_the_page_names_every_option() -> None:
    page = Path(__file__, "../../../docs/how-to/connect-pipelines-and-sql.md").resolve().read_text()
    assert [name for name in OURS if f"`{name}`" not in page] == []


def test_a_key_is_written_as_the_address_of_the_kind_spells_it() -> None:
    assert keyed("postgres:host=h#orders", ("id", "a,b")) == "postgres:host=h#orders?key=id,a%2Cb"
    assert keyed("postgres:host=h#orders?id=x", ("id",)) == "postgres:host=h#orders?id=x&key=id"
    assert keyed("delta:/lake#id=x", ("id",)) == "delta:/lake#id=x&key=id"


# ---- files of tasks


def test_only_runs_that_are_older_or_left_alone_are_swept(tmp_path: Path) -> None:
    import os

    files = TaskFiles(str(tmp_path), "orders")
    place = Path(files.address)
    for run in ("own", "older", "young", "old"):
        (place / run / "3").mkdir(parents=True)
        (place / run / "3" / "0-1.parquet").touch()
    long_ago = time.time() - 30 * 3600
    for path in (place / "old").rglob("*"):
        os.utime(path, (long_ago, long_ago))
    os.utime(place / "old", (long_ago, long_ago))
    files.sweep("own", {"older"})
    assert sorted(run.name for run in place.iterdir()) == ["own", "young"]
    files.drop("own", 3)
    assert list((place / "own").iterdir()) == []


def test_a_place_that_cannot_be_made_is_refused_before_tasks_begin(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OnceOnlyError) as caught:
        TaskFiles(str(tmp_path / "file" / "staging"), "orders")
    assert caught.value.code == "E114"
    with pytest.raises(OnceOnlyError) as caught:
        TaskFiles("/proc/onceonly", "orders").make()
    assert caught.value.code == "E114"
