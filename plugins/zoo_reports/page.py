"""The page of a report: self-contained HTML with tables and pictures, the same as Markdown, and a text for the terminal."""

import io
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from zoo.report import Report, plain_console, plain_table

HEAD = """<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:"><style>
body { font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #222; margin: 0 auto; padding: 1.2rem; max-width: 1080px; }
h1 { font-size: 1.35rem; overflow-wrap: anywhere; } h2 { font-size: 1.08rem; margin-top: 2.2rem; }
p, li { max-width: 75ch; overflow-wrap: anywhere; } .note { color: #666; font-size: .88rem; }
.scroll { overflow-x: auto; } img { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .7rem; border-bottom: 1px solid #e6e6e6; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
</style>"""


class Table(NamedTuple):
    """A table of text: its title, the titles of its columns, and its cells."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def as_html(self) -> str:
        """Format the table as HTML."""
        line = "".join(f"<th>{escape(text)}</th>" for text in self.head)
        body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in self.rows)
        return f'<h2>{escape(self.title)}</h2><div class="scroll"><table><tr>{line}</tr>{body}</table></div>'

    def as_markdown(self) -> list[str]:
        """Format the table without its title as lines of Markdown."""
        rows = [f"| {' | '.join(text.replace('|', '/') for text in row)} |" for row in self.rows]
        return [f"| {' | '.join(self.head)} |", f"|---|{'---:|' * (len(self.head) - 1)}", *rows]


@dataclass
class Page:
    """A title, the line under it, findings (one sentence each), tables, and notes at the end."""

    title: str
    about: str
    findings: Sequence[str] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()

    def report(self, name: str, values: dict[str, Any], files: dict[str, bytes]) -> Report:
        """Return the report: JSON values, a text with the last table, the pictures, and the page under this name."""
        images = {file: content for file, content in files.items() if file.endswith(".svg")}
        pages = {f"{name}.md": self.as_markdown(), f"{name}.html": self.as_html(images)}
        return Report(values, self.as_text(), files | pages)

    def as_html(self, images: dict[str, bytes]) -> bytes:
        """Format the page as one HTML file; names may be untrusted and are escaped."""
        svg = '<img alt="{}" src="data:image/svg+xml;base64,{}">'
        first, *others = [svg.format(escape(name), b64encode(data).decode()) for name, data in images.items()] or [""]
        findings = "".join(f"<li>{escape(text)}</li>" for text in self.findings)
        tables = [table.as_html() for table in self.tables]
        notes = [f'<p class="note">{escape(text)}</p>' for text in self.notes]
        body = [f'<h1>{escape(self.title)}</h1><p class="note">{escape(self.about)}</p>', first, f"<ul>{findings}</ul>"]
        html = "\n".join([f"<title>{escape(self.title)}</title></head><body>", *body, *others, *tables, *notes])
        return f'<!DOCTYPE html>\n<html lang="en"><head>{HEAD}{html}</body></html>\n'.encode()

    def as_markdown(self) -> bytes:
        """Format the page without its pictures as Markdown."""
        lines = [f"# {self.title}", "", self.about, "", *(f"- {text}" for text in self.findings)]
        for table in self.tables:
            lines += ["", f"## {table.title}", "", *table.as_markdown()]
        lines += ["", *(f"- {text}" for text in self.notes)] if self.notes else []
        return ("\n".join(lines).replace("<", "&lt;") + "\n").encode()

    def as_text(self) -> str:
        """Format the page with its last table for the terminal."""
        view = plain_table(*self.tables[-1].head)
        for row in self.tables[-1].rows:
            view.add_row(*row)
        file = io.StringIO()
        console = plain_console(file=file)
        console.print(f"\n{self.title}\n{self.about}\n")
        console.print(view)
        for text in (*self.findings, *self.notes):
            console.print(text)
        return file.getvalue().rstrip()
