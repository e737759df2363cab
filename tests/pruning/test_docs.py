"""The examples of docs/pruning.md run."""

import re
from pathlib import Path

import torch

PAGE = (Path(__file__).parents[2] / "docs" / "pruning.md").read_text(encoding="utf-8")


def test_the_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict = {}
    for block in blocks:
        exec(compile(block, "pruning.md", "exec"), names)
    one, two = names["net"].state_dict(), names["same"].state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert names["done"].number == 2
    assert 0.35 < names["done"].survivors / names["done"].weights < 0.37
