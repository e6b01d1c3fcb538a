"""Refuse wrong names and types in public calls (E110).

Python's own ``TypeError`` names the argument and not what to write instead, and a value of a wrong type fails somewhere
within, or at the first batch.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from onceonly.errors import OnceOnlyError, nearest, refuse

Call = TypeVar("Call", bound=Callable[..., Any])

_Told = Callable[..., Any]


def checks_arguments(call: Call) -> Call:
    """Have a class or a function of the public interface refuse calls that its signature does not take.

    A class also refuses values of types that its annotations do not have, once it has said what it knows better itself.
    A function may have done something by then, so it is asked about types only when it failed.
    """
    found: Any = call
    if isinstance(call, type):
        found.__init__ = _wrapped(found.__init__, found.__name__, always=True)
    else:
        found = _wrapped(call, found.__name__, always=False)
    return found  # type: ignore[no-any-return]


def _wrapped(call: _Told, name: str, *, always: bool) -> _Told:
    @wraps(call)
    def calling(*given: Any, **named: Any) -> Any:
        try:
            answer = call(*given, **named)
        except OnceOnlyError:
            raise
        except Exception as error:
            if found := _wrong(call, name, given, named):
                raise found from error
            raise
        if always and (found := _wrong(call, name, given, named)):
            raise found
        return answer

    return calling


def _wrong(call: _Told, name: str, given: Sequence[Any], named: Mapping[str, Any]) -> Exception | None:
    signature = _signature(call)
    taken = [one for one in signature.parameters if one != "self"]
    if unknown := next((one for one in named if one not in taken), None):
        takes = f"{', '.join(f'{one}=' for one in taken) or 'nothing'}"
        meant = nearest([unknown], taken).replace("?", "=?")
        elsewhere = getattr(given[0], "elsewhere", "") if given else ""
        way = f"give one of these{elsewhere and '; ' + elsewhere.format(setting=unknown.replace('_', '.'))}"
        return _refused(f"{name}() has no argument {unknown}={meant}.", f"it takes {takes}", way)
    try:
        bound = signature.bind(*given, **named).arguments
    except TypeError as error:
        return _refused(f"{name}(): {error}.", f"it is {name}{_spelled(signature)}", "give each argument once, by name")
    for one, value in bound.items():
        parameter = signature.parameters[one]
        simple = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) and one != "self"
        if simple and not _fits(call, str(parameter.annotation), value):
            words = " or ".join(_words(part) for part in _parts(str(parameter.annotation)))
            # Not the value: it may be a secret in a form that nobody masks.
            return _refused(f"{name}({one}=) was given {_a(type(value))}.", f"{one}= takes {words}", f"give {words}")
    return None


def _refused(problem: str, cause: str, way: str) -> Exception:
    return refuse("E110", problem=problem, cause=cause, next=way)


@cache
def _signature(call: _Told) -> inspect.Signature:
    return inspect.signature(call)


def _spelled(signature: inspect.Signature) -> str:
    plain = [
        parameter.replace(annotation=parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    return str(inspect.Signature(plain))


# ---- types, out of annotations as they are written


def _fits(call: _Told, annotation: str, value: object) -> bool:
    """Whether a value is of a type that the annotation names; so is anything where it names one that is not known."""
    return any(_is(kind, value) for kind in _kinds(call, annotation))


@cache
def _kinds(call: _Told, annotation: str) -> tuple[Any, ...]:
    return tuple(_kind(inspect.unwrap(call), part) for part in _parts(annotation))


def _kind(call: _Told, part: str) -> Any:
    """What a part of an annotation means where it was written; names that only a type checker imports are anything."""
    scope = getattr(call, "__globals__", {})
    for text in (part, part.partition("[")[0]):
        try:
            return eval(text, {"os": os, **scope})  # of our own source
        except (NameError, TypeError, AttributeError):
            continue
    return Any


def _is(kind: Any, value: object) -> bool:
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        return any(_is(part, value) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is Sequence:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return False
        return all(_is(parts[0], one) for one in value if parts)
    return _is_one(origin, value)


def _is_one(kind: Any, value: object) -> bool:
    if kind is None:
        return value is None
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return kind is Any or isinstance(value, kind)


def _parts(annotation: str) -> tuple[str, ...]:
    """Of a union as it is written."""
    found, depth = [""], 0
    for sign in annotation:
        depth += (sign == "[") - (sign == "]")
        if sign == "|" and not depth:
            found.append("")
        else:
            found[-1] += sign
    return tuple(one.strip() for one in found)


_WORDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "True or False",
    "None": "None",
    "os.PathLike": "a path",
    "Mapping": "a mapping",
    "Sequence": "a list",
    "Callable": "a function",
}


def _words(part: str) -> str:
    name = part.partition("[")[0]
    return _WORDS.get(name) or _with_article(name)


def _a(kind: type) -> str:
    return "None" if kind is NoneType else _with_article(kind.__name__)


def _with_article(name: str) -> str:
    return f"{'an' if name[0].lower() in {*'aeiou'} else 'a'} {name}"
