"""Parse Postgres connection strings, sink addresses and table names.

Addresses carry no secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as escape
from urllib.parse import unquote

from onceonly.errors import refuse
from onceonly.errors.options import misused

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import Engine
    from typing_extensions import Self

SECRETS = frozenset({"password", "sslpassword", "oauth_client_secret"})
"""Connection parameters that never leave the process in words."""

# A server that vanishes without a word must be noticed within a minute or two, not after the kernel's two hours.
_DEFAULTS: Mapping[str, str] = {
    "application_name": "onceonly",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}

_NAME = re.compile(r'(?:(?P<schema>"(?:[^"]|"")+"|[^".]+)\.)?(?P<name>"(?:[^"]|"")+"|[^".]+)')
NAME_BYTES = 63
"""The longest name that Postgres keeps: what is longer is cut, and two names become one."""


def quote(identifier: str) -> str:
    """Quote an identifier for a statement with placeholders, in which a percent sign is doubled."""
    return printed(identifier).replace("%", "%%")


def printed(identifier: str) -> str:
    """Quote an identifier for a statement that a user pastes."""
    return '"' + identifier.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's name, exactly as in the catalogue: case counts.

    ``schema`` is ``None`` until it is resolved by the server's search path.
    """

    schema: str | None
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``table`` or ``schema.table``. A part that holds a dot is put in double quotes.

        Raises E110: not a table name.
        """
        match = _NAME.fullmatch(text)
        parts = [_unquote(part) for part in match.groups() if part] if match else []
        if not parts or any(len(part.encode()) > NAME_BYTES or "\0" in part for part in parts):
            cause = f"table= wants table or schema.table, at most {NAME_BYTES} bytes each"
            remedy = "put a part that holds a dot into double quotes: table='public.\"orders.v2\"'"
            raise misused(f"{text!r} is not the name of a Postgres table.", cause, remedy)
        return cls(parts[0] if len(parts) == 2 else None, parts[-1])

    @property
    def text(self) -> str:
        """As :meth:`parse` reads it."""
        return ".".join(_plain(part) for part in (self.schema, self.name) if part)

    @property
    def sql(self) -> str:
        """Quoted for a statement with placeholders (see :func:`quote`)."""
        return ".".join(quote(part) for part in (self.schema, self.name) if part)

    @property
    def printed(self) -> str:
        """Quoted for a statement that a user pastes."""
        return ".".join(printed(part) for part in (self.schema, self.name) if part)


def _unquote(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def _plain(part: str) -> str:
    return '"' + part.replace('"', '""') + '"' if re.search(r'[".]', part) else part


@dataclass(frozen=True, slots=True, repr=False)
class Server:
    """libpq's connection parameters. They can be pickled, and their ``repr`` hides secrets."""

    parameters: Mapping[str, str]

    @classmethod
    def parse(cls, dsn: str) -> Self:
        """Read a libpq URL or key-value string.

        Raises E108: the driver is not installed, E110: not a connection string.
        """
        require_driver()
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        try:
            parameters = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError:
            # The driver's own text quotes the string, which may hold a password in a place that mask() does not know.
            problem = "The connection string of the Postgres sink cannot be read."
            remedy = "write postgresql://user@host:5432/database and put the password into PGPASSWORD or ~/.pgpass"
            raise misused(problem, "a misspelt parameter or URL", remedy) from None
        return cls({name: str(value) for name, value in parameters.items() if value is not None})

    def __repr__(self) -> str:
        return f"Server({self.public})"

    @property
    def public(self) -> str:
        """Key-value string without secrets."""
        from psycopg.conninfo import make_conninfo

        public_parameters = {name: value for name, value in self.parameters.items() if name not in SECRETS}
        return make_conninfo("", **public_parameters)

    @property
    def dsn(self) -> str:
        """Key-value string, with secrets."""
        from psycopg.conninfo import make_conninfo

        return make_conninfo("", **self.parameters)

    @property
    def url(self) -> str:
        """SQLAlchemy URL, with secrets."""
        from sqlalchemy import URL

        rest = dict(self.parameters)
        user, password, database = rest.pop("user", None), rest.pop("password", None), rest.pop("dbname", None)
        url = URL.create("postgresql+psycopg", user, password, database=database, query=rest)
        where, mark, query = url.render_as_string(hide_password=False).partition("?")
        # SQLAlchemy spells a blank as a form does; libpq would take the plus for itself, in options= above all.
        return where + mark + query.replace("+", "%20")

    def with_secrets_of(self, other: Server) -> Server:
        """Add the secrets of ``other`` if login and place are the same."""
        if self._login != other._login or "password" in self.parameters:
            return self
        secrets = {name: value for name, value in other.parameters.items() if name in SECRETS}
        return Server({**self.parameters, **secrets})

    @property
    def _login(self) -> tuple[str, ...]:
        """User, database and host. A password must not go to any other place, so these names must be equal."""
        parameters = self.parameters
        user = parameters.get("user", "")
        where = (
            parameters.get("host", ""),
            parameters.get("hostaddr", ""),
            parameters.get("port", "5432"),
            parameters.get("service", ""),
        )
        return (user, parameters.get("dbname", user), *where)

    def connect(self, **more: Any) -> psycopg.Connection[Any]:
        """Open a connection of our own, without a pool."""
        import psycopg

        # Prepared plans break on tables that are made again under one name ("cached plan must not change result type"),
        # and under transaction pooling. The bytes of a COPY are UTF-8, whatever PGCLIENTENCODING says.
        parameters: dict[str, Any] = {**_DEFAULTS, **self.parameters, **more, "client_encoding": "UTF8"}
        return psycopg.connect(**parameters, prepare_threshold=None)

    def resolved(self, connection: psycopg.Connection[Any]) -> Server:
        """Add a live connection's parameters: an executor lacks the driver's environment and files."""
        live_parameters = {name: str(value) for name, value in connection.info.get_parameters().items()}
        secrets = {"password": connection.info.password} if connection.info.password else {}
        return Server({**self.parameters, **live_parameters, **secrets})

    def engine(self) -> Engine:
        """Make an SQLAlchemy engine, so that a ledger in the same database can join a transaction."""
        from sqlalchemy import create_engine

        return create_engine(
            "postgresql+psycopg://",
            creator=self.connect,
            # Whoever waited for the head looks at the row as it is then; a stricter level fails with 40001 instead.
            isolation_level="READ COMMITTED",
            use_native_hstore=False,  # else the first connection asks for a type that no statement here has
            pool_size=2,
            hide_parameters=True,  # an error would quote rows
        )


def require_driver() -> None:
    """Check that the sink's packages are installed. Raises E108."""
    from importlib.util import find_spec

    for package in ("psycopg", "pgpq", "pyarrow"):
        if find_spec(package) is None:
            raise refuse("E108", what="PostgresSink", package=package, extra="postgres")


def address_of(server: Server, table: TableName, options: Mapping[str, Sequence[str]]) -> str:
    """``postgres:<connection string without secrets>#<table>[?option=value&...]``."""
    query = "&".join(f"{name}={','.join(map(escape, values))}" for name, values in options.items())
    target = escape(table.text, safe='."')
    return f"postgres:{server.public}#{target}" + (f"?{query}" if query else "")


def read_address(address: str) -> tuple[str, str, dict[str, list[str]]]:
    """Connection string, table and options of an address. Raises E110: not an address of this kind."""
    kind, _, rest = address.partition(":")
    dsn, mark, target = rest.rpartition("#")
    if kind != "postgres" or not mark:
        problem = f"{address!r} is not the address of a Postgres sink."
        cause = "it wants postgres:postgresql://USER@HOST/DATABASE#TABLE"
        raise misused(problem, cause, "see the addresses of every pipeline: onceonly status")
    table, _, query = target.partition("?")
    pairs = (pair.partition("=") for pair in query.split("&") if pair)
    return dsn, unquote(table), {name: [unquote(part) for part in value.split(",")] for name, _, value in pairs}
