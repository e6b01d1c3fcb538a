"""Doctor's checks: versions, Java, jars, destinations, known pipelines."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib.metadata import metadata, requires
from pathlib import Path

from onceonly.doctor import UNOBSERVED, Check, Observed, State, rules
from onceonly.errors import OnceOnlyError, mask
from onceonly.protocol import Inspectable, Sink
from onceonly.protocol.health import observe, spell
from onceonly.protocol.registry import sink_from_address
from onceonly.runtime.sink_refusals import UNREADABLE, reason_of
from onceonly.spark import detect
from onceonly.spark.jars import find_java
from onceonly.spark.versions import LINES, SparkVersion
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.install import DISTRIBUTION, Requirement, hint, pip, requirement_of
from onceonly_checkpoints.ledger import Ledger, LedgerUnavailable, Pipeline

# ---- Checks of versions: what is installed against what this package asks for.

EXTRAS = ("spark", "postgres", "delta", "kafka")
"""Extras whose packages are looked at; the others are of no use to a query."""

_PIN = re.compile(r"(==|>=|<=|<|>)\s*([\d.]+)")


def fits(installed_version: str, pins: str) -> bool:
    """Whether a version satisfies every pin. Only the release numbers count."""
    release = _release(installed_version)
    return all(_holds(release, operator, _release(pinned_version)) for operator, pinned_version in _PIN.findall(pins))


def _release(text: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _holds(release: Sequence[int], operator: str, pinned_release: Sequence[int]) -> bool:
    length = max(len(release), len(pinned_release))
    left = (*release, *[0] * (length - len(release)))
    right = (*pinned_release, *[0] * (length - len(pinned_release)))
    verdicts = {"==": left == right, ">=": left >= right, "<=": left <= right, "<": left < right, ">": left > right}
    return verdicts[operator]


def list_requirements() -> tuple[Requirement, ...]:
    """What the installed distribution asks for: its base and :data:`EXTRAS`, each package once."""
    lines = map(requirement_of, requires(DISTRIBUTION) or ())
    requirements = {
        line.package: line for line in lines if line.package != DISTRIBUTION and line.extra in ("", *EXTRAS)
    }
    return tuple(requirements.values())


def python_version() -> Check:
    """The interpreter against ``Requires-Python``."""
    running_version = ".".join(map(str, sys.version_info[:3]))
    pins = metadata(DISTRIBUTION)["Requires-Python"]
    if fits(running_version, pins):
        return Check("python", State.OK, running_version)
    return Check("python", State.PROBLEM, f"{running_version}, wanted {pins}", f"use a Python {pins}")


def packages() -> Iterator[Check]:
    """Every package against its pin; PySpark by its line."""
    for requirement in list_requirements():
        yield pyspark(requirement) if requirement.package == "pyspark" else package(requirement)


def pyspark(requirement: Requirement) -> Check:
    """PySpark, which the platform may bring: one that is not known is never to be replaced by another."""
    installed_version = detect.installed()
    if installed_version is None:
        return package(requirement)
    try:
        line = detect.line_of(installed_version)
    except OnceOnlyError as unknown:
        return Check("pyspark", State.PROBLEM, unknown.what, unknown.remedy)
    return Check("pyspark", State.OK, f"{installed_version} (line {line.minor})")


def package(requirement: Requirement) -> Check:
    """One package against its pin; a missing one of an extra is only a hint."""
    name, pins, extra = requirement.package, requirement.pins, requirement.extra
    command = hint(extra) if extra else pip(f"{name}{pins}")
    installed_version = detect.installed(name)
    if installed_version is None:
        state = State.HINT if extra else State.PROBLEM
        return Check(name, state, f"not installed (wanted {pins or 'any version'})", command)
    if fits(installed_version, pins):
        return Check(name, State.OK, f"{installed_version} ({pins or 'any version'})")
    return Check(name, State.PROBLEM, f"{installed_version}, wanted {pins}", pip(f"{name}{pins}"))


# ---- Checks of what Spark needs around itself: Java, jars, the workers' Python, a local address.

_VECTOR = "jdk.incubator.vector"
_GET_JAVA = "install a whole JRE of {} (openjdk-17-jre-headless, or https://adoptium.net) and set JAVA_HOME"
_PATIENCE_S = 30


def spark_checks() -> Iterator[Check]:
    """Everything around Spark."""
    yield java()
    yield spark_home()
    yield delta_jar()
    yield workers()
    yield local_address()


def java() -> Check:
    """The Java that Spark will start: its release, and a module that trimmed runtimes lack."""
    path = find_java()
    if path is None:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "no java on PATH"
        return Check("java", State.PROBLEM, where, _get_java(_line().java))
    answer = _run(path, "--list-modules")
    modules = {name: release for name, _, release in (line.partition("@") for line in answer.splitlines())}
    return judge_java(path, modules.get("java.base", ""), _VECTOR in modules, _line())


def judge_java(path: str, release: str, vector: bool, line: SparkVersion) -> Check:
    """Whether a line of Spark starts on this Java."""
    major, remedy = release.partition(".")[0], _get_java(line.java)
    if not major.isdigit() or int(major) < line.java[0]:
        return Check("java", State.PROBLEM, f"{path} is {release or 'older than 9'}", remedy)
    if line.java_vectors and not vector:
        return Check("java", State.PROBLEM, f"{path} ({release}) lacks the module {_VECTOR}", remedy)
    if int(major) not in line.java:
        details = f"{path} is {release}; Spark {line.minor} is tested on {' and '.join(map(str, line.java))}"
        return Check("java", State.HINT, details, remedy)
    return Check("java", State.OK, f"{release}{f' with {_VECTOR}' if vector else ''} ({path})")


def _get_java(releases: Sequence[int]) -> str:
    return _GET_JAVA.format(" or ".join(map(str, releases)))


def _line() -> SparkVersion:
    """The line that is installed; the newest where none is, or none that is known."""
    try:
        return detect.line_of(detect.installed() or "")
    except OnceOnlyError:
        return list(LINES.values())[-1]


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def spark_home() -> Check:
    """``SPARK_HOME`` overrides the Spark inside the package, silently."""
    home = os.environ.get("SPARK_HOME")
    inside = _pyspark_folder()
    if home is None or inside is None or Path(home).resolve() == inside:
        return Check("SPARK_HOME", State.OK, home or "not set: the Spark of the pyspark package")
    return Check(
        "SPARK_HOME",
        State.HINT,
        f"{home} is used instead of the Spark inside the pyspark package",
        "unset SPARK_HOME, unless that Spark has the version of the pyspark package",
    )


def _pyspark_folder() -> Path | None:
    spec = importlib.util.find_spec("pyspark")
    return Path(spec.origin).parent.resolve() if spec and spec.origin else None


def delta_jar() -> Check:
    """The jar that belongs to the installed pair of PySpark and delta-spark."""
    spark = detect.installed()
    if spark is None:
        return Check("delta jar", State.HINT, "pyspark is not installed", hint("spark"))
    try:
        built = detect.line_of(spark).delta
    except OnceOnlyError as unknown:
        return Check("delta jar", State.HINT, unknown.what, unknown.remedy)
    if built is None:
        return Check("delta jar", State.OK, f"none is built for PySpark {spark}: a DeltaSink commits by deltalake")
    delta = detect.installed("delta-spark")
    if delta is None:
        remedy = f"{hint(built.extra)}; only MERGE by Spark needs it"
        return Check("delta jar", State.HINT, "delta-spark is not installed", remedy)
    jar = f"{built.jar}-{delta}.jar"
    jar_path = next((path for folder in _jar_folders() for path in folder.glob(f"**/*{jar}")), None)
    if jar_path is not None:
        return Check("delta jar", State.OK, str(jar_path))
    return Check(
        "delta jar",
        State.HINT,
        f"{jar} is not on this machine yet",
        "Spark fetches it at its first start with with_delta(...); offline, put it into the session's spark.jars",
    )


def _jar_folders() -> Iterator[Path]:
    inside = _pyspark_folder()
    candidates = [Path(os.environ["SPARK_HOME"]) / "jars"] if "SPARK_HOME" in os.environ else []
    candidates += [inside / "jars"] if inside else []
    home = Path.home()
    candidates += [*home.glob(".ivy2*"), home / ".m2" / "repository" / "io" / "delta"]
    return (folder for folder in candidates if folder.is_dir())


def workers() -> Check:
    """The Python that Spark's workers run, which is not the driver's unless somebody says so."""
    named = os.environ.get("PYSPARK_PYTHON")
    path = shutil.which(named or "python3")
    remedy = f"export PYSPARK_PYTHON={sys.executable}"
    if path is None:
        return Check("PYSPARK_PYTHON", State.PROBLEM, f"{named or 'python3'} is not on PATH", remedy)
    probe = "import sys, pandas, pyarrow; print('%d.%d' % sys.version_info[:2])"
    return judge_workers(named, path, _run(path, "-c", probe).strip())


def judge_workers(named: str | None, path: str, answer: str) -> Check:
    """Whether workers can run: the same Python release, with pandas and pyarrow."""
    driver_version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    whose = f"PYSPARK_PYTHON is {path}" if named else f"not set, so workers run {path}"
    remedy = f"export PYSPARK_PYTHON={sys.executable}"
    if not answer:
        return Check("PYSPARK_PYTHON", State.PROBLEM, f"{whose}, which cannot import pandas and pyarrow", remedy)
    if answer != driver_version:
        return Check(
            "PYSPARK_PYTHON", State.PROBLEM, f"{whose}, which is {answer}; the driver is {driver_version}", remedy
        )
    return Check("PYSPARK_PYTHON", State.OK, whose)


def local_address() -> Check:
    """Whether the host's name leads anywhere; on laptops and in containers it often does not."""
    local_ip = os.environ.get("SPARK_LOCAL_IP")
    if local_ip:
        return Check("SPARK_LOCAL_IP", State.OK, local_ip)
    remedy = "export SPARK_LOCAL_IP=127.0.0.1, if Spark runs on this machine alone"
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        return Check("SPARK_LOCAL_IP", State.HINT, f"not set, and the host name {name} does not resolve", remedy)
    if address.startswith("127."):
        return Check("SPARK_LOCAL_IP", State.HINT, f"not set, and {name} resolves to {address}", remedy)
    return Check("SPARK_LOCAL_IP", State.OK, f"not set; {name} resolves to {address}")


# ---- Checks of destinations: whether they answer, and what in them breaks the promise.

NOBODY = "onceonly-doctor"
"""A name that no pipeline has: opening creates nothing, so nothing remembers it."""

_OF_A_SERVER = (("postgres", "://"), ("postgresql", "://"))
"""How a plain DSN begins."""


def destination(
    address: str, pipeline: str = NOBODY, observed: Observed = UNOBSERVED, ledger: str | None = None
) -> Iterator[Check]:
    """Everything about one address; a plain Postgres DSN is checked as a server.

    Args:
        address: of a sink, or a DSN.
        pipeline: the pipeline that writes there.
        observed: what its past epochs took.
        ledger: where the ledger lies; a sink in its database logs in as it does.
    """
    if address.partition("://")[:2] in _OF_A_SERVER:
        yield from server(mask(address), address, observed)
        return
    try:
        sink = sink_from_address(address, ledger)
    except UNREADABLE as error:
        yield _silent(address, error)
        return
    yield from of_sink(sink, pipeline, observed)


def of_sink(sink: Sink, pipeline: str = NOBODY, observed: Observed = UNOBSERVED) -> Iterator[Check]:
    """Everything about one sink, which is opened and closed; what it refuses ends it."""
    try:
        yield from _sink(sink, pipeline, observed)
    except UNREADABLE as error:
        yield _silent(sink.address, error)
    finally:
        sink.close()


def _silent(address: str, error: Exception) -> Check:
    remedy = error.remedy if isinstance(error, OnceOnlyError) else ""
    code = error.code if isinstance(error, OnceOnlyError) else ""
    return Check(mask(address), State.PROBLEM, reason_of(error), remedy, code)


def _sink(sink: Sink, pipeline: str, observed: Observed) -> Iterator[Check]:
    sink.open(pipeline)
    yield Check(sink.address, State.OK, f"answers; an epoch is committed by: {sink.capabilities.committer}")
    if sink.ledger_url:
        yield from server(sink.address, sink.ledger_url, observed)
    checks = sink.examine(observed) if isinstance(sink, Inspectable) else None
    if checks is not None:
        yield from checks
    else:
        details = f"{type(sink).__name__} has no examine(): no more than its opening was checked"
        yield Check(sink.address, State.HINT, details)


def server(name: str, url: str, observed: Observed = UNOBSERVED) -> Iterator[Check]:
    """A Postgres server: reachable, and none of the settings that lose or forbid commits."""
    try:
        facts = rules.read_server(url)
    except (LedgerUnavailable, ValueError) as error:
        remedy = "check host, port, database, role and password (PGPASSWORD, ~/.pgpass)"
        yield Check(name, State.PROBLEM, reason_of(error), remedy)
        return
    yield Check(name, State.OK, f"Postgres {facts.settings['server_version']} answers")
    yield from rules.judge_settings(name, facts.settings)
    yield from rules.judge_timeouts(name, facts.settings, observed)
    yield from rules.judge_clock(name, facts.clock)


# ---- Checks of pipelines that a ledger knows: their past epochs, their sinks, their checkpoints, their names.


def pipeline_checks(ledger: Ledger, query: str | None, sinks: Sequence[str], location: str) -> Iterator[Check]:
    """Everything about the pipelines of a ledger.

    Args:
        ledger: opened.
        query: the only one to look at; ``None``: all.
        sinks: addresses that the caller looks at; those of a pipeline are known by its ledger, too.
        location: where the ledger lies; sinks in its database log in as it does.

    Raises:
        LedgerUnavailable: it cannot be read.
    """
    for entry in ledger.pipelines():
        if query in (None, entry.name):
            yield from _pipeline(ledger, entry, sinks, location)


def _pipeline(ledger: Ledger, entry: Pipeline, others: Sequence[str], location: str) -> Iterator[Check]:
    records = rules.records_of(ledger, entry)
    observed = observe(records, int(time.time() * 1000), ledger.pins(entry.name))
    pause = spell(observed.longest_gap_s)
    took = f"longest transaction {spell(observed.longest_open_s)}, longest pause between two epochs {pause}"
    yield Check(entry.name, State.OK, f"epoch {entry.epoch}; {took}" if observed.epochs else "no epoch yet")
    addresses = [address for _, address in entry.sinks]
    for address in dict.fromkeys([*addresses, *others]):
        yield from destination(address, entry.name, observed, location)
    if entry.checkpoint:
        yield from rules.judge_checkpoint(entry.checkpoint, rules.mount_of(entry.checkpoint))
    yield from rules.judge_names(rules.facts_of(entry, records, list(_fences(entry, records, location))))
    yield from rules.judge_timeout(entry.name, [record.epoch.time for record in records if record.epoch.time])


def _fences(entry: Pipeline, records: Sequence[EpochRecord], location: str) -> Iterator[tuple[str, int]]:
    """Newest generation in each sink that can be read; one that cannot is told by its own checks."""
    for sink_id, address in entry.sinks if records else ():
        try:
            with closing(sink_from_address(address, location)) as sink:
                sink.open(entry.name)
                fence = sink.fence()
        except UNREADABLE:
            continue
        if fence is not None:
            yield sink_id, fence.generation
