"""Whatever happens to a pipeline: each command that its refusal prints leads out, and loses no more than it names."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from integration.conftest import chosen
from integration.servers import Origin, PostgresAddress
from integration.waysout import page
from integration.waysout.situations import DRAWN, SITUATIONS
from integration.waysout.walk import Cell, walk
from integration.waysout.world import SHAPES, Database, Files, Shape, Table, Topic, World

pytestmark = [pytest.mark.waysout, pytest.mark.spark, pytest.mark.postgres, pytest.mark.kafka]

CELLS = [(shape, name) for shape in SHAPES for name, what in SITUATIONS.items() if what.fits(shape)]

Worlds = Callable[[Shape, bool], World]


@pytest.fixture(scope="session")
def quick_postgres(request: pytest.FixtureRequest, any_postgres: PostgresAddress) -> Iterator[PostgresAddress]:
    """The server, without waiting for disks where it is ours: no wreck here is one of the server, and each copy of a
    wreck drops databases, which flushes all of it."""
    if chosen("Postgres").origin in {Origin.CONTAINER, Origin.ENVIRONMENT}:
        yield any_postgres
        return
    with psycopg.connect(request.getfixturevalue("postgres").dsn, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
        yield any_postgres
        connection.execute("ALTER SYSTEM RESET fsync")
        connection.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="session")
def worlds(request: pytest.FixtureRequest, spark, quick_postgres, tmp_path_factory) -> Worlds:
    """Makes pipelines at epoch 4, one for all cells that do not spoil its source."""
    made: dict[Shape, World] = {}
    number = itertools.count()

    def make(shape: Shape) -> World:
        root = tmp_path_factory.mktemp("ways")
        name = f"ways{next(number)}"
        table = Table(root / "table", root)
        database = Database(quick_postgres.database(name))
        second = Database(quick_postgres.database(f"{name}b"), "postgres:second")
        sinks = {"Postgres": [database], "Delta": [table], "three": [database, table, second]}[shape.sinks]
        broker = request.getfixturevalue("any_kafka") if shape.source == "Kafka" else None
        source = Topic(spark, broker, name) if broker else Files(spark, root / "in")
        return World(source, sinks, root, stateful=shape.state == "stateful").write_all()

    def get(shape: Shape, alone: bool) -> World:
        if alone:
            return make(shape)
        if shape not in made:
            made[shape] = make(shape)
        return made[shape]

    return get


@pytest.fixture
def written_down(request: pytest.FixtureRequest) -> Iterator[Callable[[Cell], None]]:
    """Adds a line to the results, where ``--ways-out`` says."""
    found: list[Cell] = []
    yield found.append
    place = request.config.getoption("--ways-out")
    if place:
        page.write(found, Path(place))


@pytest.mark.parametrize(("shape", "situation"), CELLS, ids=[f"{s.source}-{s.state}-{s.sinks}-{n}" for s, n in CELLS])
def test_each_printed_way_leads_out(
    worlds: Worlds, written_down: Callable[[Cell], None], shape: Shape, situation: str
) -> None:
    cell = Cell(shape.source, shape.state, shape.sinks, situation)
    written_down(cell)
    walk(worlds(shape, SITUATIONS[situation].spoils), cell)
    print(cell)
    assert cell.ways, f"{cell.code} prints no way out that can be followed"
    ends = [f"{way.remedy}: {way.verdict}" for way in cell.ways if not way.good]
    assert not ends, "\n".join(ends)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "drawn" in metafunc.fixturenames:
        cells = [(shape, name) for shape in SHAPES for name, what in DRAWN.items() if what.fits(shape)]
        many, seed = (metafunc.config.getoption(name) for name in ("--drawn", "--drawn-seed"))
        some = random.Random(seed).sample(cells, min(many, len(cells)))
        ids = [f"{s.source}-{s.state}-{s.sinks}-{name}" for s, name in some]
        metafunc.parametrize("drawn", some, ids=ids)


def test_each_way_leads_out_of_two_losses_and_of_dumps(worlds: Worlds, drawn: tuple[Shape, str]) -> None:
    shape, name = drawn
    cell = walk(worlds(shape, DRAWN[name].spoils), Cell(shape.source, shape.state, shape.sinks, name))
    print(cell)
    assert cell.ways, f"{cell.code} prints no way out that can be followed"
    ends = [f"{cell.code}: {way.remedy}: {way.verdict}" for way in cell.ways if not way.good]
    assert not ends, "\n".join(ends)
