"""Hooks of mkdocs: what the pages link to in the repository becomes part of the site, which fetches nothing from elsewhere."""

import io
import logging
import os
import posixpath
import re
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import griffe
from mkdocs.structure.files import File

from zoo.cli import main
from zoo.cli.commands import command_names

ROOT = Path(__file__).parents[1]
PAGES = {"plugins/README.md": "plugins.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages outside of docs/, and their places on the site."""
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
FOREIGN = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\s>]*"
    r"|<link\b(?![^>]*\brel=[\"']?(?:canonical|prev|next))[^>]*\bhref=[\"']?(?:https?:)?//[^\s>]*"
    r"|(?:@import\s*[\"']|url\([\"']?)(?:https?:)?//[^\s)]*"
)
log = logging.getLogger("mkdocs.hooks.site")


class Examples(griffe.Extension):
    """Read the section Example of our docstrings as code, which griffe does under the name Examples only."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rename the section."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)


def foreign(text: str) -> list[str]:
    """List what a page or style sheet would fetch from elsewhere; links to follow are none of these."""
    return FOREIGN.findall(text)


def targets(source: str, text: str) -> Iterator[str]:
    """Yield the paths in the repository that a page links to."""
    for _, target, _ in LINK.findall(text):
        if ":" not in target:
            yield posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def place(path: str) -> str | None:
    """Return where a path of the repository is on the site, if it is there."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return PAGES.get(path) or (f"files/{path}" if (ROOT / path).is_file() else None)


def rewrite(source: str, text: str) -> str:
    """Let the links of a page lead to the same files on the site; the name of a folder stays as text."""
    here = posixpath.dirname(place(source) or "")

    def one(match: re.Match[str]) -> str:
        label, target, anchor = match[1], match[2], match[3] or ""
        if ":" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if (ROOT / path).is_dir():
            return label
        found = place(path)
        return match[0] if found is None else f"[{label}]({posixpath.relpath(found, here or '.')}{anchor})"

    return LINK.sub(one, text)


def help_of(*words: str) -> str:
    """Return the help of the command line, or of one command, as it is printed 90 columns wide."""
    with patch.dict(os.environ, COLUMNS="90"), redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
        main([*words, "--help"])
    return f"```text\n{printed.getvalue().strip()}\n```"


def command_line() -> str:
    """Write the page of all commands."""
    sections = [f"## zoo {name}\n\n{help_of(name)}" for name in command_names()]
    return "\n\n".join(["# The command line", help_of(), *sections, ""])


def on_files(files: Any, config: Any) -> None:
    """Add the pages and files outside of docs/."""
    texts = {f"docs/{page.src_uri}": page.content_string for page in files.documentation_pages()}
    for source, name in PAGES.items():
        texts[source] = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=texts[source]))
    files.append(File.generated(config, "reference/commands.md", content=command_line()))
    linked = {path for source, text in texts.items() for path in targets(source, text)}
    for path in sorted(linked - set(PAGES)):
        if not path.startswith("docs/") and (name := place(path)):
            files.append(File.generated(config, name, abs_src_path=str(ROOT / path)))


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite the links of a page."""
    names = {name: source for source, name in PAGES.items()}
    return rewrite(names.get(page.file.src_uri, f"docs/{page.file.src_uri}"), markdown)


def on_post_build(config: Any) -> None:
    """Warn, which ends a strict build, of what would be fetched from elsewhere."""
    for path in Path(config["site_dir"]).rglob("*"):
        if path.suffix in (".html", ".css"):
            for found in foreign(path.read_text(encoding="utf-8")):
                log.warning(f"{path.name} fetches from elsewhere: {found:.120}")
