"""Reads what another application (Delta's ``txnAppId``) last wrote to a table, and what became of that since."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from onceonly.foreign import Transaction
from onceonly_sinks.delta import loginspect
from onceonly_sinks.delta.ladder import Rung
from onceonly_sinks.delta.loginspect import Entry

if TYPE_CHECKING:
    from onceonly_sinks.delta.table import Table


def transaction(table: Table, app: str) -> Transaction:
    """The newest version of an application, from the table's state; what came after it, from the log.

    The state alone is not enough: RESTORE takes rows back and leaves the version where it is
    (https://github.com/delta-io/delta/issues/1813).
    """
    handle = table.reopen()
    version = None if handle is None else handle.transaction_version(app)
    if handle is None or version is None:
        return Transaction(None, ())
    later: list[Entry] = []
    for number in range(handle.version(), -1, -1):
        text = table.log.text(number)
        if text is None:
            return Transaction(version, (loginspect.unreadable(0, number),))
        if _wrote(text, app):
            found = loginspect.disturbances(reversed(later), table.identity, number, Rung.APPENDS)
            return Transaction(version, tuple(one for one in found if not one.allowed))
        later.append(loginspect.parse(number, text, table.app))
    return Transaction(version, (loginspect.unreadable(0, 0),))


def _wrote(text: str, app: str) -> bool:
    actions = (json.loads(line) for line in text.split("\n") if line.strip())
    return any(action.get("txn", {}).get("appId") == app for action in actions)
