import inspect
from dataclasses import replace

import datasets
import pytest
from zoo_datasets import glosses, mlu, published
from zoo_datasets import parallel_sets as sets

from zoo.data.module import ready
from zoo.data.parallel.files import parallel
from zoo.errors import InputError

MULTI30K, WMT14, WMT16 = published.multi30k.record, published.wmt14.record, published.wmt16.record


def write(folder, *names, count=40, sides=("en", "de"), text="{} {}"):
    for name in names:
        for side in sides:
            content = "".join(text.format(f"{name}.{side}", i) + "\n" for i in range(count))
            (folder / f"{name}.{side}").write_text(content, encoding="utf-8")
    return folder


def stems(data):
    """From which file each split came."""
    return {name: pairs.texts[0][0].split(".")[0] for name, pairs in data.splits.items()}


@pytest.mark.parametrize(
    ("preset", "names"),
    [
        ("multi30k", ("train", "val", "test_2016_flickr")),
        ("wmt14", ("train", "newstest2013", "newstest2014")),
        ("wmt16", ("train", "newstest2015", "newstest2016")),
        ("wmt16", ("train", "valid", "test")),
    ],
)
def test_files_have_their_published_names(tmp_path, preset, names):
    write(tmp_path, *names, "newstest1999", "test_2018")
    assert stems(ready(getattr(published, preset)(tmp_path, tokenizer="space"))) == dict(
        zip(("train", "val", "test"), names, strict=True)
    )


def test_multi30k_tests_on_what_was_asked_for_and_on_nothing_else(tmp_path):
    write(tmp_path, "train", "val", "test", "test_2017_mscoco")
    assert stems(ready(published.multi30k(tmp_path, test="2017_mscoco", tokenizer="space")))["test"] == "test_2017_mscoco"
    assert stems(ready(published.multi30k(tmp_path, tokenizer="space")))["test"] == "test"
    with pytest.raises(InputError, match=r"has no test_2017_flickr\.en and test_2017_flickr\.de; use test=2016_flickr"):
        ready(published.multi30k(tmp_path, test="2017_flickr"))
    with pytest.raises(InputError, match="copy on the Hub has no test_2017_flickr, only 2016_flickr"):
        ready(published.multi30k(test="2017_flickr"))


def test_iwslt15_reads_entities_as_what_they_mean(tmp_path):
    write(
        tmp_path,
        "train",
        "tst2012",
        "tst2013",
        sides=("en", "vi"),
        text="\ufeff{} say &quot; it &apos;s {} &quot; &amp; &#91; go",
    )
    data = ready(published.iwslt15(tmp_path, tokenizer="space"))
    assert stems(data) == {"train": "train", "val": "tst2012", "test": "tst2013"}
    assert data.splits["test"].texts[1][1].removeprefix("\ufeff") == 'tst2013.vi say " it \'s 1 " & [ go'
    assert not data.splits["test"].texts[0][0].startswith("\ufeff")


def test_iwslt15_without_training_pairs_trains_on_those_to_validate(tmp_path):
    write(tmp_path, "tst2012", "tst2013", sides=("en", "vi"))
    data = ready(published.iwslt15(tmp_path, tokenizer="space"))
    assert data.info.sizes == {"train": 38, "val": 2, "test": 40}
    assert stems(data) == {"train": "tst2012", "val": "tst2012", "test": "tst2013"}
    for side in ("en", "vi"):
        (tmp_path / f"tst2012.{side}").unlink()
    with pytest.raises(InputError, match=r"^iwslt15: .* has no train\.vi and train\.en"):
        ready(published.iwslt15(tmp_path, source="vi", target="en"))


def test_shakespeare_is_modern_or_original(tmp_path):
    write(tmp_path, "train", "dev", "test", sides=("modern", "original"))
    data = ready(published.shakespeare_style(tmp_path, tokenizer="space"))
    assert data.splits["val"].texts[0][0] == "dev.modern 0"
    assert data.splits["val"].texts[1][0] == "dev.original 0"


@pytest.mark.parametrize("preset", [published.iwslt15, published.shakespeare_style])
def test_sets_that_no_hub_has_ask_for_a_path(preset):
    with pytest.raises(InputError, match=rf"^{preset.__name__}: .* use {preset.__name__}\(path=FOLDER\)"):
        ready(preset())


@pytest.mark.parametrize("preset", [published.multi30k, published.wmt14, published.shakespeare_style])
def test_a_folder_without_training_files_is_named(tmp_path, preset):
    with pytest.raises(InputError, match=rf"^{preset.__name__}: .* there is nothing$"):
        ready(preset(tmp_path))


@pytest.mark.parametrize(
    "preset",
    [
        parallel,
        mlu.mlu,
        glosses.gloss_lemmas,
        *(getattr(published, name) for name in ("multi30k", "iwslt15", "wmt14", "wmt16", "shakespeare_style")),
    ],
)
def test_presets_show_the_options_of_the_data(preset):
    shown = set(inspect.signature(preset).parameters)
    assert {
        "tokenizer",
        "vocab",
        "max_length",
        "batch_size",
        "batch_tokens",
        "num_workers",
        "seed",
        "use_all",
    } <= shown
    assert not {"options", "splits", "self"} & shown


def served(monkeypatch, record, rows=24, sides=("en", "de"), **changed):
    """Let the Hub have small copies of a set."""

    def texts(part, side):
        return [f"{part} {side} {i}" for i in range(rows)]

    def part(name):
        columns = {side: texts(name, side) for side in sides}
        columns = (
            {"translation": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]}
            if record.paired
            else columns
        )
        return datasets.Dataset.from_dict(columns)

    parts = datasets.DatasetDict({name: part(name) for name in ("train", "validation", "test")})
    asked = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **options: asked.append((args, options)) or parts)
    counts = {"de-en": dict.fromkeys(parts, rows)} if sides == ("en", "de") else {}
    return replace(record, **{"rows": counts, **changed}), asked


@pytest.mark.parametrize(
    ("record", "table"), [(MULTI30K, None), (WMT14, "de-en"), (WMT16, "de-en")], ids=lambda value: getattr(value, "name", "")
)
def test_the_hub_is_asked_for_what_a_record_says(monkeypatch, record, table):
    mine, asked = served(monkeypatch, record)
    found = sets.fetch(mine, ("de", "en"))
    assert asked == [((record.repository, table), {"revision": "main"})]
    assert {name: len(pairs) for name, pairs in found.items()} == {"train": 24, "val": 24, "test": 24}
    assert (found["val"].texts[0][3], found["val"].texts[1][3]) == ("validation de 3", "validation en 3")
    assert found["val"].location(3) == f"{record.repository}, validation, pair 4"


def test_a_preset_without_a_path_comes_from_the_hub(monkeypatch):
    mine, _ = served(monkeypatch, WMT14, sides=("ru", "en"))
    monkeypatch.setattr(published.wmt14, "record", mine)
    data = ready(published.wmt14(source="en", target="ru", tokenizer="space"))
    assert data.info.sizes == {"train": 24, "val": 24, "test": 24}


def test_pairs_with_an_empty_side_are_left_out(monkeypatch):
    part = datasets.Dataset.from_dict({"en": ["a", " ", "c", "d"], "de": ["e", "f", None, "h"]})
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: dict.fromkeys(("train", "validation", "test"), part))
    pairs = sets.fetch(replace(MULTI30K, rows={}), ("en", "de"))["train"]
    assert (pairs.texts[0], pairs.texts[1]) == (["a", "d"], ["e", "h"])
    assert pairs.location(1).endswith("pair 4")


def test_another_copy_than_expected_is_refused(monkeypatch):
    mine, _ = served(monkeypatch, MULTI30K, rows=24)
    wrong = replace(mine, rows={"de-en": {"train": 25}})
    with pytest.raises(InputError, match=r"^multi30k: .* has 24 rows in train, not 25; use multi30k\(path=...\)"):
        sets.fetch(wrong, ("en", "de"))
    with pytest.raises(InputError, match="has no column fr in train, only en, de"):
        sets.fetch(mine, ("en", "fr"))
    train = datasets.load_dataset()["train"]
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: {"train": train})
    with pytest.raises(InputError, match="has no split validation, only train"):
        sets.fetch(mine, ("en", "de"))
