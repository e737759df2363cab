"""Write the table of the included checkpoints into docs/sharing.md: ``python -m benchmarks.checkpoints``."""

from benchmarks.machine import ROOT, replace_table
from zoo.checkpoint.manifest import number
from zoo.hub.sources import Release, exported_bytes, of_catalogue, packaged

PAGE = ROOT / "docs" / "sharing.md"
BEGIN = "<!-- table: zoo/hub/pretrained/catalogue.json -->"


def row(release: Release) -> str:
    """Format a checkpoint as a line of Markdown."""
    facts = release.facts
    total = facts["parameters"]["total"]
    name, value = next((name, value) for name, value in facts["metrics"].items() if name != "loss")
    result = f"{name} {number(value)}"
    sizes = (facts["bytes"], exported_bytes(facts), exported_bytes(facts, "int8"))
    size = " | ".join([f"{total:,}", *("" if size is None else f"{size / 1000:.0f}" for size in sizes)])
    return f"| `{release.name}` | {result} | {size} |"


def table() -> str:
    """Format the catalogue of the zoo as a Markdown table."""
    head = "| checkpoint | test result | parameters | kB | as ONNX | in int8 |"
    rows = [row(release) for release in of_catalogue(str(packaged()), "")]
    return "\n".join([head, "|---|---|---:|---:|---:|---:|", *rows])


def updated(text: str) -> str:
    """Update the table on a page."""
    return replace_table(text, BEGIN, table())


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
