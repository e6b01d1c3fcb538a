"""Prepare the reference: spell out names that you cannot import, make links of roles and errors."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import griffe

_LITERAL = re.compile(r" ::$", re.MULTILINE)
_ROLE = re.compile(r":(?P<role>class|func|meth|mod|attr|exc|data):`~?(?P<path>[^`]+)`")


class Signatures(griffe.Extension):
    """Replace aliases of types and constants by their values, unless a package exports them."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Rewrite annotations, defaults and docstrings of a package that was read."""
        self.modules = loader.modules_collection
        self.exported = {path for module in self.modules.members.values() for path in _exported(module)}
        self._prepare(pkg)

    def _prepare(self, found: griffe.Object | griffe.Alias) -> None:
        if isinstance(found, griffe.Alias):
            return
        if isinstance(found, griffe.Function):
            found.returns = self._spelled(found.returns)
            for parameter in found.parameters:
                parameter.annotation = self._spelled(parameter.annotation)
                parameter.default = self._spelled(parameter.default)
            for overload in found.overloads or ():
                self._prepare(overload)
        elif isinstance(found, griffe.Attribute):
            found.annotation, found.value = self._spelled(found.annotation), self._spelled(found.value)
        for member in found.members.values():
            self._prepare(member)
        if found.docstring:
            _link_names(found, found.docstring)

    def _spelled(self, part: Any) -> Any:
        """Return an expression in which each name can be imported, or is a class."""
        if isinstance(part, list | tuple):
            return [self._spelled(each) for each in part]
        if not isinstance(part, griffe.Expr):
            return part
        if (meaning := self._meaning(part)) is not None:
            return self._spelled(meaning)
        spelled = copy.copy(part)
        for field in dataclasses.fields(part):
            if field.name not in ("parent", "member"):
                setattr(spelled, field.name, self._spelled(getattr(part, field.name)))
        return spelled

    def _meaning(self, part: griffe.Expr) -> Any:
        """Return what a reader needs in the place of an expression, ``None`` if that is the expression itself."""
        if isinstance(part, griffe.ExprSubscript) and str(part.left) == "Annotated":
            return part.slice.elements[0]
        if isinstance(part, griffe.ExprCall) and isinstance(part.function, griffe.ExprLambda):
            return part.function.body
        if isinstance(part, griffe.ExprCall) and str(part.function).startswith("dict"):
            return griffe.ExprDict([], [])
        return self._value(part.canonical_path) if isinstance(part, griffe.ExprName | griffe.ExprAttribute) else None

    def _value(self, path: str) -> Any:
        """Return the value of an alias or constant that no package exports."""
        try:
            found = self.modules[path]
        except KeyError:
            return None
        if path in self.exported or not isinstance(found, griffe.Attribute) or not found.parent.is_module:
            return None
        return None if str(found.value).startswith("TypeVar") else found.value


def _exported(module: griffe.Module) -> Iterator[str]:
    """Yield paths, as defined, of the names in ``__all__`` of a module and those below it."""
    for name in module.exports or ():
        member = module.members.get(str(name))
        if member is not None:
            yield member.target_path if isinstance(member, griffe.Alias) else member.path
    for child in module.members.values():
        if isinstance(child, griffe.Module):
            yield from _exported(child)


def _link_names(found: griffe.Object, docstring: griffe.Docstring) -> None:
    """Make links of roles and of errors that are raised. Called once signatures are done: sections copy their types."""
    docstring.value = _ROLE.sub(lambda role: _link(found, role), _LITERAL.sub("", docstring.value))
    for section in docstring.parsed:
        if isinstance(section, griffe.DocstringSectionRaises):
            for error in section.value:
                error.annotation = griffe.ExprName(str(error.annotation), parent="onceonly.errors")


def _link(found: griffe.Object, role: re.Match[str]) -> str:
    """Return what a role of Sphinx names, as a link if a page has it."""
    path = role["path"]
    label = path if role["role"] == "mod" else path.rpartition(".")[2]
    if not path.startswith("onceonly"):
        head, _, rest = path.partition(".")
        try:
            path = ".".join(filter(None, (found.resolve(head), rest)))
        except griffe.NameResolutionError:
            return f"`{label}`"
    return f'<autoref identifier="{path}" optional><code>{label}</code></autoref>'
