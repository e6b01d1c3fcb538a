"""The pytest plugin is registered with its options, and costs nothing where nobody uses it."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_pytest_pays_nothing_for_the_plugin_where_nobody_uses_it():
    code = "import sys, pytest, onceonly_lab.plugin; print(*(m for m in sys.modules if m.startswith('onceonly')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(loaded) == ["onceonly_lab", "onceonly_lab.plugin"]


def test_the_plugin_is_registered_with_its_options_and_markers(pytestconfig: pytest.Config):
    assert pytestconfig.pluginmanager.has_plugin("onceonly_lab.plugin")
    assert pytestconfig.getoption("--chaos-budget") is None
    assert any(line.startswith("chaos_level(level)") for line in pytestconfig.getini("markers"))
