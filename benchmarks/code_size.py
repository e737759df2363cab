"""Count code: ``python -m benchmarks.code_size [FOLDER ...]`` prints a table with one column per source tree.

Counts files, lines and names in `zoo` and `plugins`. Repeated lines belong to a sequence of at least six lines that also occurs
elsewhere, ignoring whitespace.
"""

import argparse
import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

RUN = 6
"""Minimum number of lines that count as repeated."""
SHORT = 40


def sources(root: Path, *packages: str) -> list[Path]:
    """List the Python files of packages, without the build folders of pip."""
    paths = (path for package in packages for path in (root / package).rglob("*.py"))
    return sorted(path for path in paths if "build" not in path.relative_to(root).parts)


def names_at_the_top(root: Path) -> list[str]:
    """List the modules and packages at the top of `zoo`."""
    names = (path.name.removesuffix(".py") for path in (root / "zoo").iterdir())
    return sorted(name for name in names if name not in ("__init__", "__pycache__", "py.typed"))


def code_lines(path: Path) -> list[str]:
    """Return the stripped lines of code of a file, without docstrings, comments and blank lines."""
    text = path.read_text(encoding="utf-8")
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return [
        line.strip() for number, line in lines if number not in docstrings and line.strip() and not line.strip().startswith("#")
    ]


def repeated(files: list[Path]) -> int:
    """Count the lines of code in sequences of `RUN` lines that occur at least twice."""
    runs: Counter[tuple[str, ...]] = Counter()
    texts = [code_lines(path) for path in files]
    for lines in texts:
        runs.update(tuple(lines[i : i + RUN]) for i in range(len(lines) - RUN + 1))
    total = 0
    for lines in texts:
        starts = (i for i in range(len(lines) - RUN + 1) if runs[tuple(lines[i : i + RUN])] > 1)
        total += len({number for start in starts for number in range(start, start + RUN)})
    return total


def functions(files: list[Path]) -> Iterator[int]:
    """Yield the number of lines of each function."""
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield (node.end_lineno or node.lineno) - node.lineno + 1


def nodes(root: Path) -> dict[str, int]:
    """Return the number of AST nodes of each package in `zoo` and `plugins`; modules at the top of `zoo` count together."""
    counts: Counter[str] = Counter()
    for path in sources(root, "zoo", "plugins"):
        package = path.parent.relative_to(root).as_posix()
        counts[package] += sum(1 for _ in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return dict(counts)


def measure(root: Path) -> dict[str, int]:
    """Return the counts of a source tree."""
    files, data = sources(root, "zoo", "plugins"), sources(root, "zoo/data")
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    return {
        "files in zoo and plugins": len(files),
        "lines": sum(lengths.values()),
        f"files with fewer than {SHORT} lines of code": sum(len(code_lines(path)) < SHORT for path in files),
        "names at the top of zoo": len(names_at_the_top(root)),
        "files in zoo/data": len(data),
        "lines in zoo/data": sum(lengths[path] for path in data),
        "files in zoo/registry": len(sources(root, "zoo/registry")),
        "lines of the longest file": max(lengths.values()),
        "lines of the longest function": max(functions(files)),
        "repeated lines of code": repeated(files),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, default=[Path(__file__).parents[1]])
    trees = {folder.resolve().name: measure(folder) for folder in parser.parse_args().folders}
    print(f"| | {' | '.join(trees)} |\n|---|{'---:|' * len(trees)}")
    for name in next(iter(trees.values())):
        print(f"| {name} | {' | '.join(f'{tree[name]:,}' for tree in trees.values())} |")


if __name__ == "__main__":
    main()
