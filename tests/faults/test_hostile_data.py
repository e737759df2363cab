"""Untrusted data, configurations and command lines: no code runs, memory and time stay small, one line reports the problem."""

import os
import sys
from itertools import islice
from pathlib import Path

import pytest

from tests.faults.commands import attempt, mutations, prepare
from tests.faults.hostile_data import CORPUS, FEW, REVIEWS, TEXTS
from tests.faults.process import zoo_command
from zoo.cli.parser import MOST_BYTES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are measured in /proc")
MOST_MEMORY = 128 * 2**20
"""Memory in bytes beyond twice the file size: a compressed text may have 100 MiB."""


@pytest.mark.parametrize("name", CORPUS)
def test_hostile_data_are_refused(tmp_path, name):
    words = CORPUS[name](tmp_path)
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    ended = zoo_command(words, tmp_path, timeout=120, env={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert ended.refused, (ended.code, ended.err)
    assert not (tmp_path / "ran").exists()
    assert ended.memory < 2 * size + MOST_MEMORY
    assert ended.seconds < 20  # unpacking and reading 100 MiB in short lines takes about 8


def test_a_configuration_can_be_read_from_a_pipe(tmp_path):
    (tmp_path / "a.tsv").write_text(REVIEWS)
    end, begin = os.pipe()
    os.write(begin, b"seed: 7\noptimizer: {lr: 1e-3}\n")
    os.close(begin)
    words = [*TEXTS, *FEW, "--data", "text(path=a.tsv)", "-c", f"/proc/{os.getpid()}/fd/{end}", "--print_config"]
    ended = zoo_command(words, tmp_path)
    os.close(end)
    assert ended.code == 0, ended.err
    assert "seed: 7\n" in ended.out
    assert "lr: 0.001\n" in ended.out


def test_the_size_limit_of_a_configuration(tmp_path):
    for size, code in ((MOST_BYTES, 0), (MOST_BYTES + 1, 2)):
        Path(tmp_path, "c.yaml").write_text("seed: 1\n".ljust(size, "#"))
        assert zoo_command([*TEXTS, "-c", "c.yaml", "--print_config"], tmp_path).code == code


def test_mutations_are_refused(tmp_path):
    prepare(tmp_path)
    results = [(words, attempt(tmp_path, words, text)) for words, text in islice(mutations(0), 15)]
    assert [(words, ended) for words, ended in results if not ended.refused and ended.code != 0] == []
    assert sum(ended.refused for _, ended in results) > 7
