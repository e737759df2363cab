import pytest
from zoo_datasets import linzen as preset

from zoo.data.module import ready
from zoo.errors import InputError


def sva(*args, **options):
    return ready(preset.sva(*args, **options))


@pytest.fixture
def agreement_files(tmp_path):
    for name, rows in (("val", 100), ("test.2", 7)):
        lines = [f"{('VBZ', 'VBP', 'VBZ')[i % 3]}\tthe NN {name} {i}" for i in range(rows)]
        (tmp_path / f"numpred.{name}.tsv").write_text("\n".join(lines))
    return tmp_path


def test_agreement_is_split_by_line_number(agreement_files):
    data = sva(agreement_files)
    assert data.info.sizes == {"train": 80, "val": 10, "test": 10}
    assert data.info.classes == ("singular", "plural")
    numbers = {split: {int(text.split()[-1]) % 10 for text in table.texts[0]} for split, table in data.splits.items()}
    assert numbers == {"train": set(range(2, 10)), "val": {1}, "test": {0}}
    assert {"NN", "val"} <= data.tokenizer.backend.get_vocab().keys()


def test_agreement_by_attractors_keeps_the_training_rows(agreement_files):
    data = sva(agreement_files, attractors=2)
    assert data.info.sizes == {"train": 80, "val": 10, "test": 7}
    assert data.splits["train"].texts == sva(agreement_files).splits["train"].texts
    with pytest.raises(InputError, match=r"holds no numpred.test.3.tsv or numpred.test.3.tsv.gz"):
        sva(agreement_files, attractors=3)
    for wrong in (6, -1, True):
        with pytest.raises(InputError, match=r"sva: attractors=.*; use 1 to 5"):
            sva(agreement_files, attractors=wrong)
    with pytest.raises(InputError, match=r"the Hugging Face Hub has no copy; use sva\(path=FOLDER\)"):
        sva()
