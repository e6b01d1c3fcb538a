"""The setting that Postgres confirms an epoch with, computed by the very SQL that is sent."""

from __future__ import annotations

import sqlite3

from onceonly_sinks.postgres.head import DURABLE


def confirmed_with(setting: str) -> str:
    """What a commit is confirmed with on a server that has this ``synchronous_commit``."""
    server = {"synchronous_commit": setting}
    connection = sqlite3.connect(":memory:")
    connection.create_function("current_setting", 1, server.__getitem__)
    connection.create_function("set_config", 3, lambda name, value, local: server.update({name: value}) if local else 0)
    connection.execute(f"SELECT {DURABLE}")
    connection.close()
    return server["synchronous_commit"]


def test_a_setting_that_may_lose_a_confirmed_commit_is_raised_and_a_stronger_one_stays():
    raised = {"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply"}
    assert {setting: confirmed_with(setting) for setting in raised} == raised
