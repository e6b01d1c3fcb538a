"""Builds the wheel and demands that it holds every file of the three packages and nothing else."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("checkpoints/onceonly_checkpoints", "src/onceonly", "sinks/onceonly_sinks")
NEEDED = (".py", ".sql", ".md", "py.typed")


def expected() -> set[str]:
    """Files of the packages as they lie in the source tree."""
    folders = [ROOT / package for package in PACKAGES]
    files = {path.relative_to(folder.parent) for folder in folders for path in folder.rglob("*") if path.is_file()}
    return {path.as_posix() for path in files if "__pycache__" not in path.parts}


def built() -> set[str]:
    """Files of the wheel, without its own metadata."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "build", "--wheel", "--outdir", folder, str(ROOT)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (wheel,) = Path(folder).glob("*.whl")
        names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if ".dist-info/" not in name}


def main() -> int:
    """0 if the wheel is whole."""
    wanted, found = expected(), built()
    for name in sorted(wanted ^ found):
        print(f"{'not in the wheel' if name in wanted else 'only in the wheel'}: {name}")
    lacking = [ending for ending in NEEDED if not any(name.endswith(ending) for name in found)]
    if lacking or wanted != found:
        print(f"the wheel is not whole{': it has no ' + ', '.join(lacking) if lacking else ''}")
        return 1
    print(f"wheel: {len(found)} files, whole")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
