"""Measure the plan of the library: folders of a capability, public names, verbs, sizes, comments.

    python rooms.py src/onceonly sinks/onceonly_sinks --core src/onceonly --max protocol=25 --max verbs=30

Reads the sources; only ``verbs`` imports the command line, and is left out where its extra is not installed. Figures:

    windows, replay, quality, reading, event_time
                    top folders of the core in which modules of a capability lie; a room and its sub-folders are one
    NAME.outside    modules of a capability in the core that lie neither in its room nor in the command line
    NAME.sinks      the most modules that one sink package has for it
    protocol        names that ``onceonly.protocol`` exports
    public          names that ``onceonly`` exports
    verbs           commands of the command line, those of other distributions left out
    options         options of these commands in all
    modules, lines  of the folders given
    median, p90, longest
                    lines of a function
    comments        percent of lines with a comment that is no directive and no ruler
    docstrings      percent of lines in docstrings
    headlines       first lines of module docstrings of more than 12 words
"""

from __future__ import annotations

import ast
import collections
import io
import pathlib
import re
import sys
import tokenize
from collections.abc import Iterator

from figures import Parser, finish

CAPABILITIES = {
    "windows": r"pane|window(?!_replay|s_replay|s_rerun|sagain)|partials?\b|aggregates|groups\b|slices|stepp|triggers"
    r"|netting|division",
    "replay": r"rewind|rerun|re?running|publish|recomput|replay|readback|read_back|differences|differing|beyond"
    r"|source_check|repair/|windowsagain|rules_(history|records)",
    "quality": r"quality|outputs?\b|output_rules|routes?\b|demands|constraints|row_rules|bad_?row|tally|quarantine"
    r"|dedupe|repeats|seen_ids|\bids\b|row_ids|keeping\b|division",
    "reading": r"reading/|read_?point|as_?of|sealed|seals?\b|sealing|pins?\b|versioned|read_at",
    "event_time": r"noting|event_?time|epoch_?time|marks\b|writer_progress|upstream|uptowhen|time_?views|rules_time"
    r"|time_charts|(protocol|spark)/times|row_times|lateness|completeness|retir|time_callback|asking|late_rows|laterows",
}
"""Capability to the words in the path of a module, below the root of the library, that belong to it."""

DIRECTIVE = re.compile(r"#\s*(noqa|type:|pragma|pyright|mypy|fmt:|ruff|!|-{3,}|={3,})")


def modules(folders: list[str]) -> Iterator[tuple[str, pathlib.Path]]:
    """Yield each module with its path relative to the folder that was given."""
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("*.py")):
            yield path.relative_to(folder).as_posix(), path


def folders_of(core: list[str]) -> dict[str, dict[str, int]]:
    """Return, for each capability, top folders of the core and how many of its modules lie in each."""
    counted: dict[str, collections.Counter[str]] = {name: collections.Counter() for name in CAPABILITIES}
    for root in core:
        for relative, _ in modules([root]):
            top = relative.partition("/")[0] if "/" in relative else pathlib.Path(root).name
            owner = top if top in CAPABILITIES else None
            text = relative.removesuffix(".py")
            for name, rule in CAPABILITIES.items():
                if owner == name or (owner is None and re.search(rule, text)):
                    counted[name][top] += 1
    return {name: dict(tops) for name, tops in counted.items()}


def in_sinks(sinks: str) -> dict[str, int]:
    """Return, for each capability, the most modules that one sink package has for it."""
    most: dict[str, int] = {}
    for name, rule in CAPABILITIES.items():
        counted: collections.Counter[str] = collections.Counter()
        for relative, _ in modules([sinks]):
            if "/" in relative and re.search(rule, relative.removesuffix(".py")):
                counted[relative.partition("/")[0]] += 1
        most[name] = max((n for top, n in counted.items() if top not in ("conformance", "testing")), default=0)
    return most


def exported(path: pathlib.Path) -> int:
    """Return how many names ``__all__`` of a module lists."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return len(ast.literal_eval(node.value))
    return 0


def is_ours(module: str) -> bool:
    """Return whether a command is the library's: not the lab's, and no stand-in for a package that is missing."""
    return module.startswith("onceonly.") and module not in ("onceonly.cli.groups", "onceonly.cli.plugins")


def verbs() -> tuple[int, int] | None:
    """Return commands of ours and their options; ``None`` without the extra ``cli``."""
    try:
        import click
        import typer.main

        from onceonly.cli.app import app
    except ImportError:
        return None
    commands: list[click.Command] = []

    def walk(command: object) -> None:
        children = getattr(command, "commands", None)
        if children is None:
            commands.append(command)  # type: ignore[arg-type]
        for child in (children or {}).values():
            walk(child)

    walk(typer.main.get_command(app))
    ours = [command for command in commands if is_ours(getattr(command.callback, "__module__", ""))]
    slots = sum(sum(p.param_type_name == "option" and p.name != "help" for p in command.params) for command in ours)
    return len(ours), slots


def docstring_lines(tree: ast.AST) -> Iterator[int]:
    """Yield the numbers of lines in docstrings and attribute docstrings."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else ():
            constant = each.value if isinstance(each, ast.Expr) else None
            if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                yield from range(each.lineno, (each.end_lineno or each.lineno) + 1)


def sizes(folders: list[str]) -> dict[str, float]:
    """Return figures over all modules of the folders."""
    total = docs = comments = count = headlines = 0
    functions: list[int] = []
    for _, path in modules(folders):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        count += 1
        total += text.count("\n")
        docs += len(set(docstring_lines(tree)))
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        comments += sum(t.type == tokenize.COMMENT and not DIRECTIVE.match(t.string) for t in tokens)
        headlines += len((ast.get_docstring(tree) or "").partition("\n")[0].split()) > 12
        functions += [
            (node.end_lineno or 0) - node.lineno + 1
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
    functions.sort()
    return {
        "modules": count,
        "lines": total,
        "median": functions[len(functions) // 2],
        "p90": functions[len(functions) * 9 // 10],
        "longest": functions[-1],
        "comments": round(100 * comments / total, 1),
        "docstrings": round(100 * docs / total, 1),
        "headlines": headlines,
    }


def main() -> int:
    """Measure the folders named on the command line."""
    parser = Parser(__doc__)
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="roots of the library's packages")
    parser.add_argument("--core", nargs="+", default=["src/onceonly"], metavar="FOLDER")
    parser.add_argument("--sinks", default="sinks/onceonly_sinks", metavar="FOLDER")
    options = parser.parse_args()
    tops_of = folders_of(options.core)
    figures: dict[str, float] = {name: len(tops) for name, tops in tops_of.items()}
    figures |= {
        f"{name}.outside": sum(count for top, count in tops.items() if top not in (name, "cli"))
        for name, tops in tops_of.items()
    }
    figures |= {f"{name}.sinks": most for name, most in in_sinks(options.sinks).items()}
    core = pathlib.Path(options.core[0])
    figures |= {"protocol": exported(core / "protocol/__init__.py"), "public": exported(core / "__init__.py")}
    counted = verbs()
    if counted is not None:
        figures |= {"verbs": counted[0], "options": counted[1]}
    figures |= sizes(options.folders)
    if options.verbose:
        for name, tops in tops_of.items():
            print(f"{name}: " + ", ".join(f"{top} {n}" for top, n in sorted(tops.items())))
    return finish("rooms", figures, options)


if __name__ == "__main__":
    sys.exit(main())
