"""The real files in ../shared/data, where they are: the numbers of pairs that their READMEs state."""

import pytest
from zoo_datasets.published import iwslt15, multi30k, shakespeare_style

from zoo.data.module import ready


def at(shared, folder):
    if not (shared / folder).is_dir():
        pytest.skip(f"no ../shared/data/{folder}")
    return shared / folder


def test_multi30k(shared):
    data = ready(multi30k(at(shared, "multi30k_ende"), tokenizer="space", test="2017_mscoco"))
    assert data.info.sizes == {"train": 29000, "val": 1014, "test": 461}
    assert data.splits["train"].texts[1][1] == "Mehrere Männer mit Schutzhelmen bedienen ein Antriebsradsystem."


def test_iwslt15(shared):
    data = ready(iwslt15(at(shared, "iwslt15_envi_tst"), vocab=500))
    assert data.info.sizes == {"train": 1475, "val": 78, "test": 1268}
    first = data.splits["test"].texts[0][0]
    assert first.startswith("When I was little ,")
    assert first.endswith('" Nothing To Envy . "')


def test_shakespeare_style(shared):
    data = ready(shakespeare_style(at(shared, "shakespeare_style"), tokenizer="space"))
    assert data.info.sizes == {"train": 18395, "val": 1218, "test": 1462}
