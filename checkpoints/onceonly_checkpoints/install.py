"""Commands that install extras of onceonly, and its fault lab."""

from __future__ import annotations

import json
import re
import shlex
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

RELEASED = False
"""Whether a package index has our distributions. Until then their names there may belong to others."""

DISTRIBUTION, LAB = "onceonly", "onceonly-lab"

_REQUIREMENT = re.compile(r"""([\w.-]+)(\[[^\]]*\])?\s*([^;]*?)\s*(?:;.*?(?:extra == ['"]([\w-]+)['"].*)?)?""")


class Requirement(NamedTuple):
    """A line of metadata: ``psycopg``, ``[binary]``, ``<4,>=3.2.8``, ``postgres``, the extra (empty: the base)."""

    package: str
    options: str
    pins: str
    extra: str


def requirement_of(line: str) -> Requirement:
    """Parse a ``Requires-Dist`` line as the build backend writes it."""
    match = _REQUIREMENT.fullmatch(line)
    if match is None:
        raise ValueError(f"not a requirement: {line!r}")
    package, *rest = match.groups("")
    return Requirement(package.lower(), *rest)


def pip(*requirements: str) -> str:
    """Return the command that installs requirements."""
    return shlex.join(["pip", "install", *requirements])


def hint(extra: str = "") -> str:
    """Return the command that installs an extra of onceonly, several with commas, or onceonly itself.

    ``lab`` and ``demo`` are the fault lab, without and with all that its demo needs. A command names the folder that
    onceonly was installed from. Without one it names the packages that the extra asks for, or the wheel of the lab.
    """
    name, needed = (LAB, extra.removeprefix("lab")) if extra in ("lab", "demo") else (DISTRIBUTION, extra)
    extras = f"[{needed}]" if needed else ""
    if RELEASED:
        return pip(f"{name}{extras}")
    if source := _source(name):
        return pip(*source[:-1], f"{source[-1]}{extras}")
    library = _installed(DISTRIBUTION)
    if library and name == LAB:
        return pip(f"{_origin(DISTRIBUTION)[0].parent / f'onceonly_lab-{library.version}-py3-none-any.whl'}{extras}")
    lines = map(requirement_of, (library.requires if library else None) or ())
    packages = ["".join(line[:3]) for line in lines if line.extra in needed.split(",")]
    return pip(*dict.fromkeys(packages)) if packages else f"install what {extra} needs"


def upgrade() -> str:
    """Return how to get the onceonly that wrote what this one cannot read."""
    source = _source(DISTRIBUTION)
    steps = f"update {source[-1]}, then {hint()}" if source else "install its wheel"
    return f"upgrade onceonly to the version that wrote it: {pip('--upgrade', DISTRIBUTION) if RELEASED else steps}"


def _source(name: str) -> list[str]:
    """Return the source folder as pip takes it, with ``--editable`` before it if it was. Empty: there is none."""
    path, editable = _origin(name)
    if name == LAB and not path.is_absolute():
        library, editable = _origin(DISTRIBUTION)
        path = library / "src" / "onceonly_lab"
    is_folder = path.is_absolute() and (path / "pyproject.toml").is_file()
    return [*(["--editable"] if editable else []), str(path)] if is_folder else []


def _origin(name: str) -> tuple[Path, bool]:
    """Return the path that pip recorded (PEP 610), and whether it is editable. ``Path()``: an index, another host."""
    installed = _installed(name)
    record = json.loads((installed.read_text("direct_url.json") if installed else None) or '{"url": ""}')
    url = urlsplit(record["url"])
    path = Path(url2pathname(url.path)) if url.scheme == "file" else Path()
    return path, bool(record.get("dir_info", {}).get("editable"))


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None
