"""mkdocs hooks: add linked files of the repository to the site, and check that pages load no external resources."""

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
PAGES = {
    "README.md": "python.md",
    "plugins/README.md": "plugins.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages outside of docs/, and their paths on the site; of README.md only the section Python."""
HOME, HOME_SOURCE = "index.md", "README.md"
"""The page that begins with README.md up to its section Documentation."""
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
EXTERNAL = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\s>]*"
    r"|<link\b(?![^>]*\brel=[\"']?(?:canonical|prev|next))[^>]*\bhref=[\"']?(?:https?:)?//[^\s>]*"
    r"|(?:@import\s*[\"']|url\([\"']?)(?:https?:)?//[^\s)]*"
)
log = logging.getLogger("mkdocs.hooks.site")


class Examples(griffe.Extension):
    """Rename the docstring section Example to Examples, which griffe recognizes as code."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rename the section."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)


def external(text: str) -> list[str]:
    """List the external resources that a page or style sheet loads; ordinary links are allowed."""
    return EXTERNAL.findall(text)


def targets(source: str, text: str) -> Iterator[str]:
    """Yield the repository paths that a page links to."""
    for _, target, _ in LINK.findall(text):
        if ":" not in target:
            yield posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def site_path(path: str) -> str | None:
    """Return the path on the site of a file in the repository; None if there is no such file."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return PAGES.get(path) or (f"files/{path}" if (ROOT / path).is_file() else None)


def rewrite(source: str, text: str) -> str:
    """Rewrite the links of a page to paths on the site; replace links to folders with their text."""
    here = posixpath.dirname(site_path(source) or "")

    def replace(match: re.Match[str]) -> str:
        label, target, anchor = match[1], match[2], match[3] or ""
        if ":" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if (ROOT / path).is_dir():
            return label
        target_path = site_path(path)
        return match[0] if target_path is None else f"[{label}]({posixpath.relpath(target_path, here or '.')}{anchor})"

    return LINK.sub(replace, text)


def page_text(source: str) -> str:
    """Return the text of a page outside of docs/."""
    text = (ROOT / source).read_text(encoding="utf-8")
    if source != "README.md":
        return text
    section, _, _ = text.partition("\n## Python\n")[2].partition("\n## ")
    return f"# Python\n{section}"


def help_of(*words: str) -> str:
    """Return the help text of the command line or of a command, 90 columns wide."""
    with patch.dict(os.environ, COLUMNS="90"), redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
        main([*words, "--help"])
    return f"```text\n{printed.getvalue().strip()}\n```"


def command_line() -> str:
    """Return the reference page of all commands."""
    sections = [f"## zoo {name}\n\n{help_of(name)}" for name in command_names()]
    return "\n\n".join(["# The command line", help_of(), *sections, ""])


def on_files(files: Any, config: Any) -> None:
    """Add the pages and linked files outside of docs/."""
    texts = {f"docs/{page.src_uri}": page.content_string for page in files.documentation_pages()}
    for source, name in PAGES.items():
        texts[source] = page_text(source)
        files.append(File.generated(config, name, content=texts[source]))
    files.append(File.generated(config, "reference/commands.md", content=command_line()))
    texts[HOME_SOURCE] = (ROOT / HOME_SOURCE).read_text(encoding="utf-8")
    linked = {path for source, text in texts.items() for path in targets(source, text)}
    for path in sorted(linked - set(PAGES)):
        if not path.startswith("docs/") and (name := site_path(path)):
            files.append(File.generated(config, name, abs_src_path=str(ROOT / path)))


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite the links of a page; the home page begins with README.md."""
    names = {name: source for source, name in PAGES.items()}
    text = rewrite(names.get(page.file.src_uri, f"docs/{page.file.src_uri}"), markdown)
    return home() + text if page.file.src_uri == HOME else text


def home() -> str:
    """Return README.md up to its section Documentation, with links of the home page."""
    text, _, _ = (ROOT / HOME_SOURCE).read_text(encoding="utf-8").partition("\n## Documentation\n")
    return rewrite(HOME_SOURCE, f"{text}\n")


def on_post_build(config: Any) -> None:
    """Warn about external resources; a strict build fails on warnings."""
    for path in Path(config["site_dir"]).rglob("*"):
        if path.suffix in (".html", ".css"):
            for resource in external(path.read_text(encoding="utf-8")):
                log.warning(f"{path.name} loads an external resource: {resource:.120}")
