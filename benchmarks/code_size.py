"""Count the code: ``python -m benchmarks.code_size [FOLDER ...]`` prints a table with a column for each source tree.

Files, lines and names are those of `zoo` and `plugins`; repeated lines are lines inside a run of six or more that stands
elsewhere too, white space aside.
"""

import argparse
import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

RUN = 6
"""Lines of the shortest run that counts as repeated."""
SHORT = 40


def sources(root: Path, *packages: str) -> list[Path]:
    """List the Python files of packages."""
    paths = (path for package in packages for path in (root / package).rglob("*.py"))
    return sorted(
        path for path in paths if not {"__pycache__", "build"} & set(path.relative_to(root).parts)
    )  # pip leaves build


def names_at_the_top(root: Path) -> list[str]:
    """List the files and folders at the top of the package, its own ``__init__`` and the typing marker aside."""
    names = (path.name.removesuffix(".py") for path in (root / "zoo").iterdir())
    return sorted(name for name in names if name not in ("__init__", "__pycache__", "py.typed"))


def code_lines(path: Path) -> list[str]:
    """Return the lines of a file that hold code, docstrings left out, stripped."""
    text = path.read_text(encoding="utf-8")
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            prose |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return [line.strip() for number, line in lines if number not in prose and line.strip() and not line.strip().startswith("#")]


def repeated(files: list[Path]) -> int:
    """Count the lines of code that are part of a run of `RUN` lines that stands in two places."""
    runs: Counter[tuple[str, ...]] = Counter()
    texts = [code_lines(path) for path in files]
    for lines in texts:
        runs.update(tuple(lines[i : i + RUN]) for i in range(len(lines) - RUN + 1))
    total = 0
    for lines in texts:
        hit = [False] * len(lines)
        for i in range(len(lines) - RUN + 1):
            if runs[tuple(lines[i : i + RUN])] > 1:
                hit[i : i + RUN] = [True] * RUN
        total += sum(hit)
    return total


def functions(files: list[Path]) -> Iterator[int]:
    """Yield the length of every function in lines."""
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield (node.end_lineno or node.lineno) - node.lineno + 1


def measure(root: Path) -> dict[str, int]:
    """Count one source tree."""
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
