"""The hooks of the documentation site (docs/site.py): links that leave docs/, and what would be fetched from elsewhere."""

import importlib.util
from pathlib import Path

import pytest

from zoo.cli.commands import command_names

pytest.importorskip("mkdocs", reason="needs hypercomplex-zoo[docs]")
pytest.importorskip("griffe", reason="needs hypercomplex-zoo[docs]")

PLACE = Path(__file__).parents[1] / "docs" / "site.py"
SPEC = importlib.util.spec_from_file_location("site_hooks", PLACE)
site = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(site)


@pytest.mark.parametrize(
    ("source", "text", "wanted"),
    [
        ("docs/text.md", "[a](../plugins/README.md#tasks)", "[a](plugins.md#tasks)"),
        ("docs/tutorials/lightning.md", "[a](../../CONTRIBUTING.md)", "[a](../contributing.md)"),
        ("plugins/README.md", "[a](../docs/text.md)", "[a](text.md)"),
        ("docs/tutorials/lightning.md", "![a](../images/x.png)", "![a](../images/x.png)"),
        ("docs/papers.md", "[a](../pyproject.toml)", "[a](files/pyproject.toml)"),
        (
            "docs/sharing.md",
            "[configs](../configs/pretrained) and [b](https://example.org/b)",
            "configs and [b](https://example.org/b)",
        ),
        ("docs/sharing.md", "[a](../configs/gone.yaml) [b](#there)", "[a](../configs/gone.yaml) [b](#there)"),
    ],
)
def test_links_lead_to_the_same_file_on_the_site(source, text, wanted):
    assert site.rewrite(source, text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://example.org/a.js"></script>',
        "<script async src=//example.org/a.js></script>",
        '<link rel="stylesheet" href="https://fonts.example.org/css">',
        '<img alt="a" src="http://example.org/a.png">',
        "@import 'https://example.org/a.css'",
        "a { background: url(https://example.org/a.png) }",
    ],
)
def test_what_comes_from_elsewhere_is_found(text, tmp_path, caplog):
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    site.on_post_build({"site_dir": str(tmp_path)})
    assert ["page.html fetches from elsewhere" in record.message for record in caplog.records] == [True]


def test_links_to_follow_fetch_nothing():
    fine = '<a href="https://example.org">a</a><link rel="canonical" href="https://example.org/"><script src="a.js"></script>'
    assert site.foreign(fine + '<img src="data:image/png;base64,//8=">') == []


def test_the_page_of_commands_has_the_help_of_each():
    page = site.command_line()
    for name in command_names():
        assert f"## zoo {name}\n\n```text\nusage: zoo {name}" in page
    assert "--checkpoint-every" in page
