"""Try at length what a run must survive: ``python -m tests.faults [SECTION ...]``.

Without sections all are tried. Each prints what it does; its figures go into benchmarks/results/reliability.json, beside
those of the other sections, and docs/reliability.md is written from that file.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import machine
from tests.faults import report, sections

SECTIONS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "flips": sections.flips,
    "hostile": sections.hostile,
    "commands": sections.commands,
    "ranks": sections.ranks,
    "disk": sections.disk,
    "kills": sections.kills,
    "lottery": sections.lottery,
}


def main() -> None:
    """Run sections and write their results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; page writes the page alone")
    chosen = parser.parse_args().sections or [*SECTIONS]
    if unknown := {*chosen} - {*SECTIONS, "page"}:
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    for name in chosen:
        if name != "page":
            with tempfile.TemporaryDirectory() as folder:
                found = SECTIONS[name](Path(folder)) | {"commit": machine.commit(), "machine": machine.info()}
            results = json.loads(report.RESULTS.read_text()) if report.RESULTS.exists() else {}
            report.RESULTS.write_text(json.dumps({**results, name: found}, indent=1) + "\n", encoding="utf-8")
    report.write()


if __name__ == "__main__":
    main()
