"""Parse ledger addresses, and translate driver failures to LedgerUnavailable."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sqlalchemy.exc import DBAPIError

from onceonly_checkpoints.install import hint
from onceonly_checkpoints.ledger import LedgerUnavailable, NoLedger
from onceonly_checkpoints.ledger.databases import HOLDS_NONE, PostgresDatabase, SqliteFile

_LIBPQ_WORDS = "host|hostaddr|port|dbname|user|password|passfile|service|sslmode|options|application_name"
_KEY_VALUE = re.compile(rf"\s*({_LIBPQ_WORDS})\s*=")

LedgerAddress = SqliteFile | PostgresDatabase
"""A database that can hold a ledger."""


def place_of(url_or_path: str) -> LedgerAddress:
    """Parse an address: a path, ``sqlite:///``, ``file:``, ``postgres[ql]://`` or libpq's ``key=value`` pairs.

    Raises ``ValueError`` for another kind of database, or a malformed address, which its text does not repeat.
    """
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+]*):/", url_or_path)
    if scheme is None:
        return _postgres(url_or_path) if _KEY_VALUE.match(url_or_path) else _sqlite(url_or_path)
    kind = scheme[1].lower()
    if kind in ("postgres", "postgresql", "postgresql+psycopg"):
        return _postgres(f"postgresql{url_or_path[len(kind) :]}")
    if kind in ("sqlite", "file"):
        return _sqlite(_path_in(url_or_path, kind))
    raise ValueError(f"a ledger is in SQLite or Postgres, not in {kind}")


def _path_in(url: str, kind: str) -> str:
    if kind == "file":
        return unquote(urlsplit(url).path)
    # SQLAlchemy's spelling: three slashes before a relative path, four before an absolute one.
    return url.partition(":///")[2].partition("?")[0]


def _sqlite(path: str) -> SqliteFile:
    if path in ("", ":memory:"):
        raise ValueError("a ledger needs a file: sqlite:////absolute/path/ledger.db")
    return SqliteFile(Path(path).absolute())


def _postgres(conninfo: str) -> PostgresDatabase:
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as error:
        raise LedgerUnavailable(f"its driver is missing: {hint('postgres')}") from error
    try:
        settings = conninfo_to_dict(conninfo)
    except ProgrammingError:
        # The driver's own text may repeat a part of the address, and so a password.
        raise ValueError("the Postgres address is malformed") from None
    return PostgresDatabase(tuple(sorted((key, str(value)) for key, value in settings.items() if value is not None)))


def unavailable(address: LedgerAddress, error: BaseException) -> LedgerUnavailable:
    """The ledger's own error for a driver's. It quotes nothing of its text, which may hold values or addresses."""
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    if isinstance(original, OSError) and original.errno:
        return LedgerUnavailable(os.strerror(original.errno).lower())
    reason = address.words(original)
    return NoLedger(reason) if reason == HOLDS_NONE else LedgerUnavailable(reason)


def default_path(checkpoint: Path) -> Path:
    """Default path of a local checkpoint's ledger: outside of the checkpoint, under its name."""
    return checkpoint.with_name(f"{checkpoint.name}.onceonly.db")
