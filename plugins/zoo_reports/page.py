"""The page of a report and the style of its pictures: HTML, Markdown, text, colors, axes and number formats."""

import csv
import io
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from typing import Any, NamedTuple
from warnings import catch_warnings, filterwarnings

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullLocator

from zoo.checkpoint.manifest import number
from zoo.reports import Report, plain_console, plain_table

REAL = "real"
"""The algebra of the baseline."""
GREY = "#4d4d4d"
PALETTE = ("#56b4e9", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#7a5195", "#0072b2")
"""Colors for any color vision (Okabe and Ito 2008, with purple instead of yellow)."""
MORE_COLORS = ("#8c564b", "#a0a0a0", "#999933", "#882255")
"""Colors for the algebras of a picture that has more than the palette."""
COMMON = ("complex", "octonion", "phm-4", "quaternion")
"""Algebras whose colors are assigned first, so that they are the same in all pictures."""
MARKERS = "os^DvP<>"
"""The markers of the lines of a picture."""
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

    def as_markdown(self, left: int = 1) -> list[str]:
        """Format the table without its title as lines of Markdown; the first ``left`` columns are aligned to the left."""
        rows = [f"| {' | '.join(text.replace('|', '/') for text in row)} |" for row in self.rows]
        return [f"| {' | '.join(self.head)} |", f"|{'---|' * left}{'---:|' * (len(self.head) - left)}", *rows]

    def as_csv(self) -> str:
        """Format the table without its title as CSV."""
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows([self.head, *self.rows])
        return file.getvalue()


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


# --- pictures ---


def colors_of(algebras: Iterable[str]) -> dict[str, str]:
    """Return the color of each algebra: grey for the reals, else by its name; `COMMON` ones have the same in all pictures."""
    colors = {REAL: GREY}
    for algebra in (*COMMON, *sorted({*algebras} - {REAL, *COMMON})):
        start = int(sha256(algebra.encode()).hexdigest(), 16) % len(PALETTE)
        order = PALETTE[start:] + PALETTE[:start] + MORE_COLORS
        colors[algebra] = next((color for color in order if color not in colors.values()), order[0])
    return colors


def pictures(name: str, draw: Callable[[], Figure]) -> dict[str, bytes]:
    """Draw a picture and return it as PNG and SVG, the same bytes every time."""
    style: Any = {"font.size": 9, "axes.linewidth": 0.6, "axes.edgecolor": "#888888", "text.parse_math": False}
    files = {}
    with catch_warnings(), rc_context({"svg.hashsalt": name, **style}):
        filterwarnings("ignore", "Glyph", UserWarning)  # a data set may have a name that the font lacks; the page shows it
        figure = draw()
        for kind, options in (("png", {"dpi": 150, "metadata": {"Software": None}}), ("svg", {"metadata": {"Date": None}})):
            picture = io.BytesIO()
            figure.savefig(picture, format=kind, **options)
            files[f"{name}.{kind}"] = picture.getvalue()
    return files


def plain_axes(axes: Any, grid: str = "both") -> None:
    """Draw a light grid, and no frame at the top and on the right."""
    axes.grid(axis=grid, color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def log_axis(axes: Any, which: str) -> None:
    """Scale the axis ``x`` or ``y`` logarithmically, with ticks at 1, 2 and 5; thousands are written as 1k."""
    thousands, axis = EngFormatter(sep=""), getattr(axes, f"{which}axis")
    getattr(axes, f"set_{which}scale")("log")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: thousands(value) if value >= 1000 else f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def percent_text(percent: float) -> str:
    """Format a percentage of weights with three digits.

    >>> percent_text(100), percent_text(5.184), percent_text(0.60466)
    ('100 %', '5.18 %', '0.605 %')
    """
    return f"{percent:.3g} %"


def plus_minus(mean: float, spread: float | None) -> str:
    """Format a metric with its spread over seeds.

    >>> plus_minus(0.97123, 0.0021), plus_minus(0.5, None), plus_minus(865.826, 47.7612)
    ('0.9712 ± 0.0021', '0.5000', '865.83 ± 47.76')
    """
    text = number(mean) if abs(mean) < 10 else f"{mean:.{2 if abs(mean) < 1000 else 0}f}"
    digits = ".2e" if "e" in text else f".{len(text.partition('.')[2])}f"
    return text if spread is None else f"{text} ± {spread:{digits}}"


def axis_title(metric: str, split: str) -> str:
    """Return the title of a metric's axis."""
    return f"{metric.replace('_', ' ')}, {'validation' if split == 'val' else split} split"
