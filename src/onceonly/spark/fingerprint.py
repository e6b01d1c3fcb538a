"""Fingerprint and determinism of a query, by its plan.

A plan is a line for each of its nodes and expressions, indented by depth. Ids are numbered as they come. Parts that
differ between starts (places, random ids and seeds) are left out, and so is all of a relation but its columns. A
Python function is its bytecode, constants, names and plain values. Line numbers and docstrings do not count.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from onceonly.spark import float_lineage
from onceonly.spark.detect import engine_for
from onceonly.spark.engine import QueryPlan
from onceonly.spark.float_lineage import Node
from onceonly.spark.versions import minor_of
from onceonly_checkpoints.code_version import PlanFingerprint

if TYPE_CHECKING:
    from onceonly.protocol import DataFrame

FORMAT = 1
"""Version of what is spelled here: raised by whoever changes the text of any plan or function."""

_SINKS = ("WriteToMicroBatchDataSource", "WriteToMicroBatchDataSourceV1")
"""Above a query's plan: what it writes to."""

_PLACES = ("class", "num-children", "child", "children", "left", "right", "query", "aggregateFunction", "product-class")
_DRAWN = ("sink", "session", "nodeId", "queryId", "jvmId", "randomSeed", "seed", "hideSeed", "originStats", "delay")
_SET = ("timeZoneId", "evalMode", "evalContext", "nullable", "qualifier", "nonInheritableMetadataKeys")
_LEFT_OUT = frozenset((*_PLACES, *_DRAWN, *_SET, "originConstraints", "deniedMetadataKeys"))
"""Fields that say where a child stands, that differ from start to start, or that are settings of the session."""

_SEEDED = ("Rand", "Randn", "Uuid", "Shuffle", "RandStr", "Uniform")
"""Expressions whose literal is a seed, which Spark draws at every start."""

_COLUMN = "column"
"""What a relation's output is called: the only place that tells the types of columns."""

_OWN = ("onceonly", "onceonly_checkpoints", "onceonly_sinks", "pyspark")
"""Packages whose functions are the library's: an upgrade is no change of the user's code."""


def spell(*plans: Node, delays: Sequence[str] = ()) -> str:
    """Spell analysed plans, one below the other. A column that two of them name has one number.

    ``delays`` are those of their watermarks, which Spark leaves out of its JSON.
    """
    numbers: dict[str, int] = {}
    lines = [f"watermark delay {delay}" for delay in delays]
    for plan in plans:
        waiting: list[tuple[int, str, Node]] = [(0, "", plan.children[0] if plan.kind in _SINKS else plan)]
        while waiting:
            depth, name, node = waiting.pop()
            typed = name == _COLUMN
            lines.append(f"{'  ' * depth}{name and f'{name}: '}{_line(node, numbers, typed=typed)}")
            waiting.extend((depth + 1, *each) for each in reversed(list(_below(node))))
    return "\n".join(lines)


def _below(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield the parts below a node's line with their field's name. Of a relation, its columns alone."""
    if _reads(node):
        yield from ((_COLUMN, column) for column in node.hung("output"))
    elif node.kind not in _SEEDED:
        yield from ((name, hung) for name in node.fields for hung in node.hung(name))
        yield from (("", child) for child in node.children)


def _reads(node: Node) -> bool:
    """Check for a relation: a plan's leaf, which has an output and no children."""
    return not node.children and "output" in node.fields


def _line(node: Node, numbers: dict[str, int], *, typed: bool) -> str:
    if _reads(node):
        return "relation"
    # A column's type follows from where it comes from.
    fields = {name: value for name, value in node.fields.items() if typed or (node.kind, name) != _TYPE}
    parts = ((name, _value(value, numbers)) for name, value in sorted(fields.items()) if name not in _LEFT_OUT)
    return " ".join((node.kind, *(f"{name}={value}" for name, value in parts if value)))


_TYPE = ("AttributeReference", "dataType")


def _value(value: Any, numbers: dict[str, int]) -> str:
    """Spell a field's value, with ids of expressions numbered as they come. Empty for parts spelled elsewhere.

    Trees go below the line: those among fields by the field's name, those within pairs (``CASE WHEN``) as children.
    """
    if isinstance(value, Mapping):
        if "jvmId" in value:
            return f"#{numbers.setdefault(str(value['id']), len(numbers))}"
        if "num-children" in value:
            return ""
        inner = [f"{name}: {text}" for name, each in sorted(value.items()) if (text := _value(each, numbers))]
        return f"{{{', '.join(inner)}}}" if inner else ""
    if isinstance(value, list):
        inner = [text for each in value if (text := _value(each, numbers))]
        return f"[{', '.join(inner)}]" if inner else ""
    if value is None or value is False:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


# ---- Python functions.


def describe(function: Callable[..., Any]) -> str:
    """Spell a function without calling it: a line for itself and each function of its own module that it uses."""
    lines: dict[int, str] = {}
    waiting: list[Any] = [function]
    while waiting:
        subject = waiting.pop(0)
        if id(subject) not in lines:
            lines[id(subject)], more = _described(subject)
            waiting.extend(more)
    return "\n".join(lines.values())


def _described(subject: Any) -> tuple[str, list[Any]]:
    """Return a line for one of them, and the functions that belong to it."""
    if isinstance(subject, partial):
        held = [*subject.args, *(value for _, value in sorted(subject.keywords.items()))]
        return _hashed("partial", _plain([held, sorted(subject.keywords)])), [subject.func, *filter(_followed, held)]
    if isinstance(subject, MethodType):
        return f"method of {type(subject.__self__).__qualname__}", [subject.__func__]
    if isinstance(subject, FunctionType) and not _ours(subject):
        held = [cell.cell_contents for cell in subject.__closure__ or () if _filled(cell)]
        held += [*(subject.__defaults__ or ()), *(value for _, value in sorted((subject.__kwdefaults__ or {}).items()))]
        named = [subject.__globals__.get(name) for name in _names(subject.__code__)]
        module_functions = [
            each for each in named if isinstance(each, FunctionType) and each.__module__ == subject.__module__
        ]
        parts = [_code(subject.__code__, subject.__doc__), *map(_plain, held)]
        return _hashed(f"function {subject.__qualname__}", *parts), [*filter(_followed, held), *module_functions]
    call = vars(type(subject)).get("__call__")
    if isinstance(call, FunctionType) and not _ours(call):
        return f"object of {type(subject).__qualname__}", [call]
    return _closed(subject), []


def _followed(subject: Any) -> bool:
    return isinstance(subject, FunctionType | MethodType | partial)


def _ours(function: FunctionType) -> bool:
    return (function.__module__ or "").partition(".")[0] in _OWN


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # a name that its function has not bound yet
        return False


def _hashed(name: str, *parts: str) -> str:
    return f"{name} {_hash(chr(10).join(parts))}"


def _closed(subject: Any) -> str:
    """Spell opaque code by its name and the version of its distribution, and the library's own by its name."""
    module = str(getattr(subject, "__module__", None) or type(subject).__module__)
    name = getattr(subject, "__qualname__", type(subject).__qualname__)
    top = module.partition(".")[0]
    if top in _OWN:
        return f"closed {module}.{name}"
    try:
        version = metadata.version(top)
    except metadata.PackageNotFoundError:
        version = ""
    return f"closed {module}.{name} {version}".rstrip()


def _names(code: CodeType) -> Iterator[str]:
    """Yield global names that a function and its inner functions use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _code(code: CodeType, doc: str | None = None) -> str:
    # Another docstring, not one more or less: bytecode counts constants.
    constants = [
        _code(constant) if isinstance(constant, CodeType) else _plain(constant)
        for constant in code.co_consts
        if doc is None or constant != doc
    ]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return f"{code.co_code.hex()} {names} {constants}"


def _plain(value: Any) -> str:
    """Spell a value alike in every start, or any other object by its class."""
    if value is None or type(value) in (str, bytes, bool, int, float, complex):
        return repr(value)
    if type(value) in (tuple, list):
        return f"[{', '.join(map(_plain, value))}]"
    if type(value) in (set, frozenset):
        return f"{{{', '.join(sorted(map(_plain, value)))}}}"
    if type(value) is dict:
        return f"{{{', '.join(sorted(f'{_plain(key)}: {_plain(each)}' for key, each in value.items()))}}}"
    return f"{type(value).__module__}.{type(value).__qualname__}"


# ---- The fingerprint.


def fingerprint(plan: str, functions: str) -> PlanFingerprint:
    """Fingerprint a run in this process, from both texts. ``functions`` is empty without any."""
    import pyspark

    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    held = _hash(functions) if functions else ""
    return PlanFingerprint(FORMAT, minor_of(pyspark.__version__), python, _hash(plan), held)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---- Determinism of written rows, by the plan of the query.

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Determinism:
    """Findings in the plan of the written rows, once per run and columns.

    Attributes:
        left_out: columns that the digest omits, since another order of the same rows may change them. None where no
            state makes a batch run twice.
        nondeterministic: SQL of the first expression that another run may compute differently, in the query's plan or
            the callback's part, or ``None``.
        text: plan of the query and of the callback's part, spelled alike by every start of the same code. Empty if not
            visible.
    """

    left_out: frozenset[str] = frozenset()
    nondeterministic: str | None = None
    functions: tuple[str, ...] = ()
    text: str = ""


def look(plan: QueryPlan, rows: DataFrame) -> Determinism:
    """Inspect the plan of a written batch: a few hundred calls into the JVM, so not for each batch."""
    analysed = engine_for(rows).analysed(rows, started=True)
    text = analysed.text()
    unstable = plan.nondeterministic or analysed.nondeterministic()
    try:
        plans = (float_lineage.parse(plan.text), float_lineage.parse(text)) if plan.text and text else ()
        left_out = _left_out(plans, rows) if plan.stateful else frozenset[str]()
        spelled = spell(*plans, delays=plan.delays) if plans else ""
        return Determinism(left_out, unstable, float_lineage.functions(*plans), spelled)
    except RecursionError:
        log.info("the plan is nested too deeply to follow its columns")
        return Determinism(_left_out((), rows) if plan.stateful else frozenset(), unstable)


def foreseen(plan: QueryPlan, rows: DataFrame) -> Determinism:
    """Inspect the stream before the start, as ``transform=`` leaves it. Floats are followed only in a batch."""
    analysed = engine_for(rows).analysed(rows, started=False)
    text = analysed.text()
    return Determinism(
        nondeterministic=plan.nondeterministic or analysed.nondeterministic(),
        functions=float_lineage.functions(float_lineage.parse(text)) if text else (),
    )


def _left_out(plans: tuple[float_lineage.Node, float_lineage.Node] | tuple[()], rows: DataFrame) -> frozenset[str]:
    """Return all columns with floats if they cannot be followed: no replay is refused for the order of its rows."""
    columns = float_lineage.loose(*plans) if plans else None
    if columns is not None:
        return columns
    return frozenset(field.name for field in rows.schema if float_lineage.holds_float(field.dataType.jsonValue()))
