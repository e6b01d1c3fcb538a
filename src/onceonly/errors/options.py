"""Check the options of calls, of ``format("onceonly")`` and of addresses.

An option is declared once: in the signature of the call that takes it. Name and default are the parameter's, its kind
is the annotation, and a :class:`Kind` adds the words, an example and the check that a type lacks.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from onceonly.errors import OnceOnlyError, mask, nearest, refuse
from onceonly_checkpoints.epoch_time import milliseconds

_Call = Callable[..., Any]
_Checked = TypeVar("_Checked", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Kind:
    """Part of an annotation: the option in words with their article, as you would type it, and its check."""

    words: str
    example: str
    fits: Callable[[Any], bool] = bool


def at_least(least: int, words: str, example: str = "") -> Kind:
    """Whole numbers from ``least`` on."""
    return Kind(f"{words}, {least} or more", example or str(least), lambda number: number >= least)


def _is_columns(names: object) -> bool:
    columns = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Sequence) else ()
    return all(isinstance(name, str) and name for name in columns)


Column = Annotated[str, Kind("the name of a column", '"event_time"')]
Columns = Annotated[str | Sequence[str], Kind("the name of a column, or a list of names", '"id"', _is_columns)]
Duration = Annotated[
    str, Kind("a duration of at least a second", '"7 days"', lambda text: (milliseconds(text) or 0) >= 1000)
]
Seconds = Annotated[
    float,
    # A server counts milliseconds in 32 bits, and would wait forever with 0.
    Kind("a number of seconds, 0.001 to 2147483", "30", lambda seconds: 0.001 <= seconds < 2**31 / 1000),
]
Bytes = Annotated[int, at_least(0, "a number of bytes", "67108864")]


def checks_arguments(call: _Checked) -> _Checked:
    """Make a public class or function refuse calls that its signature does not accept.

    A class also refuses values that no annotation allows, after its own checks with better messages. A function may
    have acted by the time that it fails, so its values are checked only then. A class that declares ``_arguments``
    gets its arguments by name.
    """
    decorated: Any = call
    if isinstance(call, type):
        decorated.__init__ = _check_init(decorated.__init__, decorated.__name__)
    else:
        decorated = _explain(call, decorated.__name__)
    return decorated  # type: ignore[no-any-return]


def _check_init(init: Callable[..., None], name: str) -> Callable[..., None]:
    explained = _explain(init, name)

    @wraps(init)
    def initialise(self: Any, *args: Any, **named: Any) -> None:
        explained(self, *args, **named)
        if refusal := wrong(init, name, (self, *args), named):
            raise refusal
        if hasattr(type(self), "_arguments"):
            self._arguments = by_name(init, (self, *args), named)

    return initialise


def _explain(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(call)
    def calling(*args: Any, **named: Any) -> Any:
        try:
            return call(*args, **named)
        except OnceOnlyError:
            raise
        except Exception as error:
            if refusal := wrong(call, name, args, named):
                raise refusal from error
            raise

    return calling


def wrong(call: _Call, name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> OnceOnlyError | None:
    """The refusal (E110) of a call that its signature does not accept, or ``None``."""
    signature = _signature(call)
    names = [keyword for keyword in signature.parameters if keyword != "self"]
    cause = f"it takes {', '.join(f'{keyword}=' for keyword in names) or 'nothing'}"
    if unknown := next((keyword for keyword in named if keyword not in names), None):
        suggestion = nearest([unknown], names).replace("?", "=?")
        elsewhere = getattr(positional[0], "elsewhere", "") if positional else ""
        remedy = f"give one of these{elsewhere and '; ' + elsewhere.format(setting=unknown.replace('_', '.'))}"
        return misused(f"{name}() has no argument {unknown}={suggestion}.", cause, remedy)
    try:
        bound = signature.bind(*positional, **named).arguments
    except TypeError as error:
        return misused(f"{name}(): {error}.", cause, "give each argument once, by name")
    for keyword, value in bound.items():
        parameter = signature.parameters[keyword]
        simple = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) and keyword != "self"
        if simple and not any(_is(option.kind, value) for option in _options(call, str(parameter.annotation))):
            return _misfit(name, parameter, _options(call, str(parameter.annotation)), value)
    return None


def by_name(call: _Call, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a call that its signature accepts, without ``self``."""
    bound = _signature(call).bind(*positional, **named).arguments
    return {name: value for name, value in bound.items() if name != "self"}


def names_of(columns: str | Sequence[str] | None) -> tuple[str, ...]:
    """Names of a ``Columns``, none if it was left out."""
    return (columns,) if isinstance(columns, str) else tuple(columns or ())


def misused(problem: str, cause: str, remedy: str) -> OnceOnlyError:
    """The refusal (E110) of what was given to a call or a command."""
    return refuse("E110", problem=problem, cause=cause, next=remedy)


def unfit(call: str, problem: str, cause: str, remedy: str) -> OnceOnlyError:
    """The same for the arguments of one call."""
    return misused(f"{call} cannot work with {problem}.", cause, remedy)


def meaningless(call: str, argument: str, value: object, expected: str, *, required: bool = False) -> OnceOnlyError:
    """The refusal (E110) of a value whose meaning depends on more than its kind."""
    remedy = f"give {expected}" if required else f"give {expected}, or leave {argument}= out"
    return misused(f"{call}({argument}={value!r}) is not understood.", f"{argument}= takes {expected}", remedy)


def _misfit(name: str, parameter: inspect.Parameter, options: Sequence[_Option], value: object) -> OnceOnlyError:
    keyword, words = parameter.name, " or ".join(option.words for option in options)
    example = next((option.example for option in options if option.example), "")
    remedy = f"write {keyword}={example}" if example else f"give {words}"
    if parameter.default is not parameter.empty:
        remedy = f"{remedy}, or leave {keyword}= out"
    if any(option.has_type_of(value) for option in options):
        near = (
            nearest([value], [str(choice) for option in options for choice in option.choices])
            if isinstance(value, str)
            else ""
        )
        meant = " or ".join(option.words for option in options if option.base not in (None, NoneType))
        problem = f"{keyword} is not {meant}: {value!r}{near}."
    else:  # Not the value: it may be a secret in a form that nobody masks.
        given = "None" if value is None else _with_article(type(value).__name__)
        problem = f"{name}({keyword}=) was given {given}."
    return misused(problem, f"{name}({keyword}=) takes {words}", remedy)


@cache
def _signature(call: _Call) -> inspect.Signature:
    return inspect.signature(call)


# ---- options as texts


class Typed:
    """An argument object whose ``repr`` is as you would type it."""

    __slots__ = ()

    def __repr__(self) -> str:
        call: Any = type(self)
        values = {name: getattr(self, name) for name in _signature(call).parameters}
        return typed(call.__name__, call, values)


def typed(name: str, call: _Call, values: Mapping[str, Any]) -> str:
    """A call as you would type it, without arguments that have their default. Secrets are masked."""
    arguments: list[str] = []
    for keyword, parameter in _signature(call).parameters.items():
        value = values.get(keyword, parameter.default)
        if keyword == "self" or value == parameter.default:
            continue
        text = repr(dict.fromkeys(value, "***") if isinstance(value, Mapping) else value)
        arguments.append(text if parameter.default is parameter.empty and not arguments[1:] else f"{keyword}={text}")
    return mask(f"{name}({', '.join(arguments)})")


def read_texts(owner: str, texts: Mapping[str, Sequence[str]], names: Sequence[str], *calls: _Call) -> dict[str, Any]:
    """Values of options that come as texts: those of ``names``, as ``calls`` take them. ``owner`` is what holds them.

    A list of columns has a text for each name, any other option one text. ``-`` is ``None``. Raises E110: there is no
    such option, or its text has no meaning.
    """
    if unknown := next((name for name in texts if name not in names), None):
        problem = f"{owner} has no option {unknown}{nearest([unknown], names)}."
        raise misused(problem, f"its options are: {', '.join(names)}", "correct the name, or leave the option out")
    parameters = _parameters(calls)
    return {name: _read(owner, name, values, *parameters[name]) for name, values in texts.items()}


def write_texts(values: Mapping[str, Any], names: Sequence[str], *calls: _Call) -> dict[str, list[str]]:
    """The inverse of :func:`read_texts`, without options that have their default."""
    parameters = _parameters(calls)
    changed = {name: values[name] for name in names if values[name] != parameters[name][1].default}
    return {name: _texts(value) for name, value in changed.items() if value != ()}


def _parameters(calls: Sequence[_Call]) -> dict[str, tuple[_Call, inspect.Parameter]]:
    return {name: (call, option) for call in calls for name, option in _signature(call).parameters.items()}


def _texts(value: object) -> list[str]:
    if isinstance(value, tuple):
        return [str(name) for name in value]
    return ["-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)]


def _read(owner: str, name: str, texts: Sequence[str], call: _Call, parameter: inspect.Parameter) -> Any:
    options = _options(call, str(parameter.annotation))
    # None first: any text reads as a column, "-" too.
    for option in sorted(options, key=lambda option: option.base not in (None, NoneType)):
        for value in option.readings(texts):
            if _is(option.kind, value):
                return value
    words = " or ".join(option.words for option in options if option.base not in (None, NoneType)).lower()
    example = next((option.example for option in options if option.example), "").strip('"')
    remedy = f"write {name}={example}, or leave {name} out" if example else f"give {words}"
    raise misused(f"{name} is not {words}: {','.join(texts)!r}.", f"{owner} takes {words} there", remedy)


# ---- types, out of annotations as they are written


@dataclass(frozen=True, slots=True)
class _Option:
    """One part of a union: its text in the source, and the type. A name that only a type checker imports is ``Any``."""

    text: str
    kind: Any

    @property
    def _extra(self) -> Kind | None:
        return next((extra for extra in get_args(self.kind) if isinstance(extra, Kind)), None)

    @property
    def base(self) -> Any:
        """The type alone."""
        return get_args(self.kind)[0] if self._extra else self.kind

    def has_type_of(self, value: object) -> bool:
        """Whether a value has the type, whatever it means."""
        return any(type(value) is type(choice) for choice in self.choices) or _is(self.base, value)

    @property
    def choices(self) -> tuple[Any, ...]:
        """Values of a ``Literal``."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def words(self) -> str:
        if self._extra or self.choices:
            return self._extra.words if self._extra else _listed([_quoted(choice) for choice in self.choices])
        name = self.text.partition("[")[0]
        return _WORDS.get(name) or _with_article(name)

    @property
    def example(self) -> str:
        return self._extra.example if self._extra else _quoted(self.choices[0]) if self.choices else ""

    def readings(self, texts: Sequence[str]) -> list[Any]:
        """Values that texts may mean."""
        text = ",".join(texts)
        if self.base is NoneType or self.base is None:
            return [None] if text == "-" else []
        if self.base in (bool, int, float):
            read = _TRUTH.get(text.lower()) if self.base is bool else _number(text)
            return [] if read is None else [read]
        if parse := getattr(self.kind, "parse", None):
            return [parse(text)]
        return [text.lower() if self.choices else tuple(texts) if self.kind == Columns else text]


_TRUTH = {"true": True, "false": False}


def _number(text: str) -> int | float | None:
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        return None


def _listed(words: Sequence[str]) -> str:
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def _quoted(choice: object) -> str:
    return f'"{choice}"' if isinstance(choice, str) else repr(choice)


@cache
def _options(call: _Call, annotation: str) -> tuple[_Option, ...]:
    options: list[_Option] = []
    for part in _parts(annotation):
        kind = _kind(inspect.unwrap(call), part)
        members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        options += [
            _Option(part if len(members) == 1 else getattr(member, "__name__", part), member) for member in members
        ]
    return tuple(options)


def _kind(call: _Call, part: str) -> Any:
    """The type that a part of an annotation names. Names that only a type checker imports match any value."""
    scope = getattr(call, "__globals__", None) or vars(sys.modules[call.__module__])
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
    if origin is Annotated:
        return _is(parts[0], value) and all(extra.fits(value) for extra in parts[1:] if isinstance(extra, Kind))
    if origin is Literal:
        return any(value == part and type(value) is type(part) for part in parts)
    if origin is Sequence:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return False
        return all(_is(parts[0], element) for element in value if parts)
    return _is_one(origin, value)


def _is_one(kind: Any, value: object) -> bool:
    if kind is None:
        return value is None
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return kind is Any or isinstance(value, kind)


def _parts(annotation: str) -> tuple[str, ...]:
    parts, depth = [""], 0
    for sign in annotation:
        depth += (sign == "[") - (sign == "]")
        if sign == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return tuple(part.strip() for part in parts)


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


def _with_article(name: str) -> str:
    return f"{'an' if name[0].lower() in {*'aeiou'} else 'a'} {name}"
