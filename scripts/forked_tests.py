"""Runs collected tests in forks on changed source, and learns which code each one reaches."""

from __future__ import annotations

import ast
import builtins
import gc
import hashlib
import importlib.abc
import importlib.machinery
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = tuple(ROOT / folder for folder in ("checkpoints", "src", "sinks"))
REACHED = ROOT / ".cache" / "reached.json"
_APART = "spark or connect or postgres or kafka or browser or containers or kill or waysout or source or slow"
QUICK = ["-m", f"not ({_APART} or docs or lab)"]
QUICK += [
    f"tests/{folder}"
    for folder in (
        "core",
        "checkpoints",
        "panes",
        "audit",
        "reading",
        "cli",
        "sinks/test_memory.py",
        "sinks/test_delta_sink.py",
        "sinks/test_delta_foreign.py",
        "sinks/test_delta_replacing.py",
    )
]
"""Tests of ``make test`` that need no server and no Spark, in the folders that are about what is changed."""

_LONGEST = 900
"""CPU seconds of a fork."""
_SAVED = 60
"""Seconds after which what was learnt so far is kept."""
_BLOCKS = ("body", "orelse", "finalbody")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def module_of(path: Path) -> str:
    """The name under which a file is imported."""
    folder = next(folder for folder in SOURCES if path.is_relative_to(folder))
    return ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions and methods of a module, those within functions excepted, by their qualified names."""

    def within(parent: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.FunctionDef):
                yield prefix + node.name, node
            elif isinstance(node, ast.ClassDef):
                yield from within(node, f"{prefix}{node.name}.")
            elif not isinstance(node, _SCOPES):
                yield from within(node, prefix)

    return within(tree, "")


def blocks(function: ast.FunctionDef) -> list[list[ast.stmt]]:
    """The lists of statements of a function, its own first, in an order that only its own text decides."""
    held = (getattr(node, name, None) for node in ast.walk(function) for name in _BLOCKS)
    return [one for one in held if isinstance(one, list) and one]


class _Marked(importlib.machinery.SourceFileLoader):
    """Loads a module of ours so that each block tells when it is run."""

    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(Path(self.path).read_text(encoding="utf-8"))
        for name, function in functions(tree):
            for at, block in enumerate(blocks(function)):
                told = ast.parse(f"__reached__({f'{fullname}:{name}#{at}'!r})").body[0]
                for node in ast.walk(told):
                    ast.copy_location(node, block[0])
                block.insert(int(at == 0 and ast.get_docstring(function) is not None), told)
        return compile(tree, self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    """Marks our modules; one that is changed in this process is loaded as it is changed."""

    def __init__(self) -> None:
        self.changed: dict[str, ast.Module] = {}

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        found = importlib.machinery.PathFinder.find_spec(name, path)
        if found is None or not found.origin or not any(Path(found.origin).is_relative_to(one) for one in SOURCES):
            return None
        if isinstance(found.loader, importlib.machinery.SourceFileLoader):
            found.loader = (_Changed if name in self.changed else _Marked)(name, found.origin)
        return found


class _Changed(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        return compile(FINDER.changed[fullname], self.path, "exec")


FINDER = _Finder()


@dataclass(frozen=True, slots=True)
class Job:
    """Something to be noticed.

    Attributes:
        path: of the file that is changed.
        tree: its changed source.
        functions: the names of those that differ in it.
        tests: what to run, in this order.
    """

    path: Path
    tree: ast.Module
    functions: Sequence[str]
    tests: Sequence[str]


class Tests:
    """Tests that are collected, and what each one reaches.

    Args:
        session: of pytest, after the collection.
        learns: whether what was learnt before is forgotten.
        workers: forks at a time.
    """

    def __init__(self, session: pytest.Session, *, learns: bool, workers: int) -> None:
        self._items = {item.nodeid: item for item in session.items}
        self._workers = workers
        self._functions: dict[tuple[str, str], list[FunctionType]] = {}
        for held in gc.get_objects():
            if isinstance(held, FunctionType):
                self._functions.setdefault((held.__code__.co_filename, held.__code__.co_qualname), []).append(held)
        gc.collect()
        gc.freeze()  # forks share what they do not look at
        self._learnt: dict[str, Any] = {} if learns or not REACHED.is_file() else json.loads(REACHED.read_text())
        self._learn(session)
        self._seconds: dict[str, float] = {}
        self._reaching: dict[str, list[str]] = {}
        learnt = [one for file in self._learnt.values() for one in file["tests"].items() if one[0] in self._items]
        for name, (seconds, reached) in sorted(learnt, key=lambda one: (len(one[1][1]), one[1][0])):
            self._seconds[name] = seconds
            for block in reached:
                self._reaching.setdefault(block, []).append(name)

    def reaching(self, block: str) -> list[str]:
        """Tests that run a block, those that run few others first."""
        return self._reaching.get(block, [])

    def noticed(self, jobs: Sequence[Job], told: Callable[[Job, str], None]) -> list[str]:
        """For each job the first test that fails on changed source, as well one that comes to no end; empty: none does.

        Args:
            jobs: what is changed, and the tests to run.
            told: hears of each as soon as it is known.
        """

        def run(job: Job) -> str:
            self._change(job)
            for name in job.tests:
                with _at_most(5 + 5 * self._seconds[name]):
                    if failed := self._first_failure([self._items[name]]):
                        return failed
            return ""

        broken = "the process ends"
        answers = _forked(run, jobs, self._workers, lambda job, found: told(job, broken if found is None else found))
        return [broken if found is None else found for found in answers]

    def _learn(self, session: pytest.Session) -> None:
        files: dict[str, list[pytest.Item]] = {}
        for item in session.items:
            files.setdefault(str(item.path.relative_to(ROOT)), []).append(item)
        texts = {file: hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:12] for file in files}
        new = [file for file in files if self._learnt.get(file, {}).get("hash") != texts[file]]
        saved = time.monotonic()

        def keep(file: str, tests: dict[str, Any] | None) -> None:
            nonlocal saved
            if tests is None:
                print(f"{file}: not run to its end, so it notices nothing", flush=True)
            self._learnt[file] = {"hash": texts[file], "tests": tests or {}}
            if time.monotonic() - saved > _SAVED:
                self._save()
                saved = time.monotonic()

        _forked(lambda file: self._reached(files[file]), new, self._workers, keep)
        if new:
            self._save()

    def _save(self) -> None:
        REACHED.parent.mkdir(exist_ok=True)
        REACHED.write_text(json.dumps(self._learnt), encoding="utf-8")

    def _reached(self, items: Sequence[pytest.Item]) -> dict[str, tuple[float, list[str]]]:
        found: dict[str, tuple[float, list[str]]] = {}
        for at, item in enumerate(items):
            seen.clear()
            began = time.process_time()
            if not self._first_failure([item], *items[at + 1 : at + 2]):
                found[item.nodeid] = (round(time.process_time() - began, 3), sorted(seen))
        return found

    def _first_failure(self, items: Sequence[pytest.Item], *after: pytest.Item) -> str:
        for item, following in zip(items, [*items[1:], *(after or [None])], strict=True):
            WATCH.failed = ""
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if WATCH.failed:
                return WATCH.failed
        return ""

    def _change(self, job: Job) -> None:
        """Give functions their changed code, in a module that is imported; one that is not will be as it is changed."""
        ast.fix_missing_locations(job.tree)
        if module_of(job.path) not in sys.modules:
            FINDER.changed[module_of(job.path)] = job.tree
            return
        codes = dict(_codes(compile(job.tree, str(job.path), "exec")))
        for name in job.functions:
            for function in self._functions.get((str(job.path), name), ()):
                function.__code__ = codes[name]


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname, constant
            yield from _codes(constant)


class _NoEnd(BaseException):
    """A test that takes far longer than it ever did."""


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raises in what takes more CPU seconds than these, or twenty times as long by the wall."""

    def late(*_: object) -> None:
        raise _NoEnd

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM, 20 * seconds))
    for timer, sign, most in timers:
        signal.signal(sign, late)
        signal.setitimer(timer, most, 1)
    try:
        yield
    finally:
        for timer, _, _ in timers:
            signal.setitimer(timer, 0)


def _forked(
    act: Callable[[Any], Any], given: Sequence[Any], workers: int, told: Callable[[Any, Any], None]
) -> list[Any]:
    """What ``act`` gives, as JSON, each in a fork of its own; ``None`` where one ended without an answer."""
    found: list[Any] = [None] * len(given)
    running: dict[int, tuple[int, Path]] = {}
    waiting = list(enumerate(given))[::-1]
    while waiting or running:
        while waiting and len(running) < workers:
            at, one = waiting.pop()
            place = Path(tempfile.mkdtemp(prefix="forked-"))
            running[_fork(act, one, place)] = (at, place)
        pid, _ = os.wait()
        if pid in running:
            at, place = running.pop(pid)
            if (place / "answer.json").is_file():
                found[at] = json.loads((place / "answer.json").read_text())
            shutil.rmtree(place, ignore_errors=True)
            told(given[at], found[at])
    return found


def _fork(act: Callable[[Any], Any], one: Any, place: Path) -> int:
    if pid := os.fork():
        return pid
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (_LONGEST, _LONGEST + 1))
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        WATCH.config._tmp_path_factory._basetemp = place  # a folder that goes with the fork
        answer = json.dumps(act(one))
        (place / "answer").write_text(answer)
        (place / "answer").rename(place / "answer.json")
    finally:
        os._exit(0)


class _Watch:
    """The plugin: hands the collected tests over in place of running them."""

    failed = ""
    config: Any

    def pytest_configure(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        import hypothesis  # not before pytest, which rewrites its plugin

        hypothesis.settings.register_profile("changed", deadline=None, database=None, derandomize=True)
        hypothesis.settings.load_profile("changed")
        self.answer = self.act(session)
        return True

    act: Callable[[pytest.Session], int]
    answer: int


WATCH = _Watch()
seen: set[str] = set()


def collected(arguments: Iterable[str], act: Callable[[pytest.Session], int]) -> int:
    """Collect tests as ``pytest`` does and act on them; what ``act`` returns, or 2 where they cannot be collected."""
    builtins.__reached__ = seen.add  # type: ignore[attr-defined]
    sys.meta_path.insert(0, FINDER)
    os.chdir(ROOT)
    WATCH.act = act
    WATCH.answer = 2
    pytest.main([*arguments, "-s", "-qq", "-p", "no:cacheprovider"], plugins=[WATCH])
    return WATCH.answer
