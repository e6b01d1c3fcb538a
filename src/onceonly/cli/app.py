"""All commands as one object, for tests and for what writes the reference; the program builds what was typed."""

from __future__ import annotations

from onceonly.cli.plugins import published
from onceonly.cli.tree import command_tree

app = command_tree(published())
