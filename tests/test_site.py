"""mkdocs hooks (docs/site.py): links to files outside of docs/, and external resources."""

import importlib.util
import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from zoo.cli.commands import command_names

pytest.importorskip("mkdocs", reason="needs hypercomplex-zoo[docs]")
pytest.importorskip("griffe", reason="needs hypercomplex-zoo[docs]")

PATH = Path(__file__).parents[1] / "docs" / "site.py"
SPEC = importlib.util.spec_from_file_location("site_hooks", PATH)
site = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(site)


@pytest.mark.parametrize(
    ("source", "text", "expected"),
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
def test_links_are_rewritten_to_paths_on_the_site(source, text, expected):
    assert site.rewrite(source, text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "<script async src=//example.org/a.js></script>",
        '<link rel="stylesheet" href="https://fonts.example.org/css">',
        "a { background: url(https://example.org/a.png) }",
    ],
)
def test_external_resources_are_reported(text, tmp_path, caplog):
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    site.on_post_build({"site_dir": str(tmp_path)})
    assert ["page.html loads an external resource" in record.message for record in caplog.records] == [True]


def test_links_are_not_external_resources():
    fine = '<a href="https://example.org">a</a><link rel="canonical" href="https://example.org/"><script src="a.js"></script>'
    assert site.external(fine + '<img src="data:image/png;base64,//8=">') == []


def test_a_page_shows_the_tested_python_section_of_the_readme():
    readme = (PATH.parents[1] / "README.md").read_text(encoding="utf-8")
    page = site.page_text("README.md")
    assert page.startswith("# Python\n\n```python\nimport timm, torch, zoo\n")
    assert re.findall(r"```python\n.*?```", page, re.DOTALL) == re.findall(r"```python\n.*?```", readme, re.DOTALL)
    assert "\n## " not in page
    assert "[your own Lightning code](tutorials/lightning.md)" in site.rewrite("README.md", page)


def test_the_home_page_begins_with_the_readme():
    home = site.home()
    assert home.startswith("# Hypercomplex zoo\n")
    assert "\n## Documentation\n" not in home
    assert "[Quality at equal weights](frontier.md)" in " ".join(home.split())
    assert "import timm, torch, zoo\n" in home


def test_the_reference_page_has_the_help_of_each_command():
    page = site.command_line()
    for name in command_names():
        assert f"## zoo {name}\n\n```text\nusage: zoo {name}" in page
    assert "--checkpoint-every" in page


def test_the_options_of_the_reference_exist():
    """Without pydantic, which hypercomplex-zoo[docs] does not install, mkdocstrings fails for an unknown option."""
    known = {field.name for field in fields(pytest.importorskip("mkdocstrings_handlers.python").PythonOptions)}
    pages = [path.read_text(encoding="utf-8") for path in PATH.parent.rglob("*.md")]
    given = [block for page in pages for block in re.findall(r"^    options:\n((?:      .*\n)+)", page, re.MULTILINE)]
    given += re.findall(
        r"^          options:\n((?:            .*\n)+)", (PATH.parents[1] / "mkdocs.yml").read_text(), re.MULTILINE
    )
    assert len(given) > 2
    assert [set(yaml.safe_load(block)) - known for block in given if set(yaml.safe_load(block)) - known] == []
