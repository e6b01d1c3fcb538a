"""All commands in one object, for tests and the reference."""

from __future__ import annotations

from onceonly.cli.tree import command_tree, published

app = command_tree(published())
