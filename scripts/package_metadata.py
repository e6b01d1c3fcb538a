"""Build both distributions from an sdist that names a repository, and check what an index would show of them."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path

from readme_renderer import markdown

ROOT = Path(__file__).parent.parent
REPOSITORY = "https://example.invalid/o"
_RELATIVE = re.compile(r"""(?:href|src)="((?![\w+.-]+:|#)[^"]*)""")


def build(project: Path, folder: Path, *options: str) -> None:
    """Build a project into a folder, with the build tools of this environment."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), *options, str(project)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"{run.stdout}{run.stderr}")


def unpack_with_repository(folder: Path) -> Path:
    """Unpack the library's sdist, as if its sources named the repository."""
    build(ROOT, folder, "--sdist")
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (sources,) = (path for path in folder.iterdir() if path.is_dir())
    (sources / "PKG-INFO").unlink()
    settings = sources / "pyproject.toml"
    text, count = re.subn(r'^repository = ".*"$', f'repository = "{REPOSITORY}"', settings.read_text(), flags=re.M)
    if count != 1:
        raise SystemExit(f"pyproject.toml names the repository {count} times instead of once")
    settings.write_text(text)
    return sources


def relative_links(text: str) -> list[str]:
    """Links of a page in Markdown that lead nowhere on an index."""
    page = markdown.render(text)
    if page is None:
        raise SystemExit("The index's Markdown renderer is missing: .venv/bin/pip install --group dev")
    return _RELATIVE.findall(page)


def problems(wheel: Path) -> Iterator[str]:
    """What is wrong with the metadata of a wheel, a line each."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    text = metadata.get_payload(decode=True)
    assert isinstance(text, bytes)
    yield from (f"relative link: {link}" for link in relative_links(text.decode()))
    urls = metadata.get_all("Project-URL") or []
    if len(urls) < 5 or not all(REPOSITORY in url for url in urls):
        yield f"project URLs: {urls}"


def main() -> int:
    """0 if an index would take and show both."""
    with tempfile.TemporaryDirectory() as temporary:
        dist = Path(temporary, "dist")
        sources = unpack_with_repository(Path(temporary))
        for project in (sources, sources / "src/onceonly_lab"):
            build(project, dist)
        files = sorted(dist.iterdir())
        lines = [f"{wheel.name}: {line}" for wheel in dist.glob("*.whl") for line in problems(wheel)]
        check = [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *map(str, files)]
        accepted = subprocess.run(check, capture_output=True, text=True, check=False)
    print("".join(f"{line}\n" for line in lines), end="")
    if lines or accepted.returncode:
        print(accepted.stdout + accepted.stderr)
        return 1
    print(f"metadata: twine accepts {len(files)} files, 0 relative links with the repository {REPOSITORY}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
