"""The page of a report: one HTML file with tables and pictures that fetches nothing, and the same as Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

STYLE = """
body { font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #222; margin: 0 auto; padding: 1.2rem; max-width: 1080px; }
h1 { font-size: 1.35rem; overflow-wrap: anywhere; } h2 { font-size: 1.08rem; margin-top: 2.2rem; }
p, li { max-width: 75ch; overflow-wrap: anywhere; } .note { color: #666; font-size: .88rem; }
.scroll { overflow-x: auto; } img { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .7rem; border-bottom: 1px solid #e6e6e6; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class Table(NamedTuple):
    """A table of text.

    Attributes:
        title: Its title.
        head: The titles of its columns.
        rows: Its cells.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass
class Page:
    """The content of a report.

    Attributes:
        title: Its title.
        about: The line under the title.
        findings: Sentences that say what was found.
        pictures: SVG files by caption.
        tables: Its tables.
        notes: Sentences at the end.
    """

    title: str
    about: str
    findings: Sequence[str] = ()
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()

    def as_html(self) -> bytes:
        """Format the report as one HTML file; names may be untrusted and are escaped."""
        from base64 import b64encode

        findings = "".join(f"<li>{escape(text)}</li>" for text in self.findings)
        images = [
            f'<img alt="{escape(caption)}" src="data:image/svg+xml;base64,{b64encode(svg).decode()}">'
            for caption, svg in self.pictures.items()
        ]
        notes = "".join(f'<p class="note">{escape(text)}</p>' for text in self.notes)
        head = (
            f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            f"<title>{escape(self.title)}</title><style>{STYLE}</style>"
        )
        first, rest = "".join(images[:1]), "".join(images[1:])
        body = f'<h1>{escape(self.title)}</h1><p class="note">{escape(self.about)}</p>{first}<ul>{findings}</ul>{rest}'
        body += "".join(map(_table, self.tables)) + notes
        return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'.encode()

    def as_markdown(self) -> bytes:
        """Format the report, without its pictures, as Markdown."""
        lines = [f"# {self.title}", "", self.about, "", *(f"- {text}" for text in self.findings)]
        for name, head, rows in self.tables:
            lines += ["", f"## {name}", "", f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
            lines += [f"| {' | '.join(text.replace('|', '/') for text in row)} |" for row in rows]
        lines += ["", *(f"- {text}" for text in self.notes)] if self.notes else []
        return ("\n".join(lines).replace("<", "&lt;") + "\n").encode()


def _table(table: Table) -> str:
    line = "".join(f"<th>{escape(text)}</th>" for text in table.head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in table.rows)
    return f'<h2>{escape(table.title)}</h2><div class="scroll"><table><tr>{line}</tr>{body}</table></div>'
