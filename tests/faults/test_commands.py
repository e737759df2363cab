"""Invalid command lines and configurations are refused in a few lines."""

import sys
from itertools import islice

import pytest

from tests.faults.commands import attempt, mutations, prepare

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are measured in /proc")


def test_mutations_are_refused(tmp_path):
    prepare(tmp_path)
    results = [(words, attempt(tmp_path, words, text)) for words, text in islice(mutations(0), 15)]
    assert [(words, ended) for words, ended in results if not ended.refused and ended.code != 0] == []
    assert sum(ended.refused for _, ended in results) > 7
