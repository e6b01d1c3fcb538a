"""Who used the processors: what a query, its servers and all others did is told apart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.usage import Usage, now

BURN = "import time\nwhile time.process_time() < 0.4: pass"


def test_a_child_is_the_query_s_and_one_that_names_the_directory_a_server_s(tmp_path: Path) -> None:
    before = now(tmp_path)
    subprocess.run([sys.executable, "-c", BURN], check=True)
    with subprocess.Popen([sys.executable, "-c", f"{BURN}\ninput()", str(tmp_path)], stdin=subprocess.PIPE) as server:
        while (used := now(tmp_path) - before).servers < 0.3:
            assert server.poll() is None
        server.communicate(b"\n")
    assert used.client >= 0.4
    assert used.servers < 1 + used.client
    assert used.clock > 0


def test_others_are_what_is_left_of_all_that_was_busy() -> None:
    used = Usage(10.0, 2.0, 20.0, 100.0) - Usage(6.0, 1.0, 11.0, 98.0)
    assert (used.client, used.servers, used.others) == (4.0, 1.0, 2.0)
    assert Usage(1.0, 0.0, 0.5, 1.0).others == 0.0
