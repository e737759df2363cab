"""Run the long version of the fault injection tests: ``python -m tests.faults [SECTION ...]``.

Each section (by default all) prints its progress and updates its results in benchmarks/results/reliability.json, from which
docs/reliability.md is written.
"""

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks import machine
from tests.faults import report
from tests.faults.sections import SECTIONS


def main() -> None:
    """Run the sections and write their results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)}, or page to write only the page")
    chosen = parser.parse_args().sections or [*SECTIONS]
    if unknown := {*chosen} - {*SECTIONS, "page"}:
        parser.error(f"unknown section {', '.join(sorted(unknown))}: use {', '.join(SECTIONS)}")
    for name in chosen:
        if name != "page":
            with tempfile.TemporaryDirectory() as folder:
                result = SECTIONS[name](Path(folder)) | {"commit": machine.commit(), "machine": machine.info()}
            results = json.loads(report.RESULTS.read_text()) if report.RESULTS.exists() else {}
            report.RESULTS.write_text(json.dumps({**results, name: result}, indent=1) + "\n", encoding="utf-8")
    report.write()


if __name__ == "__main__":
    main()
