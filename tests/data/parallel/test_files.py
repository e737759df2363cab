import gzip

import pytest
from zoo_datasets import published

from tests.errors import raises
from zoo.data import parallel as sets
from zoo.data.module import ready
from zoo.data.splits import with_validation
from zoo.data.table import Table, read_pairs, table_digest


def write(folder, **files):
    """Write files; `train_en` is train.en."""
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content, encoding="utf-8")
    return folder


def lines(word, count=40):
    return "".join(f"{word} {i}\n" for i in range(count))


def test_pairs_are_lines_of_two_files(tmp_path):
    write(tmp_path, a_en="\ufeffone\r\ntwo \u2028 2\nthree", a_de="eins\nzwei\x0c2\r\ndrei\n")
    pairs = read_pairs(tmp_path / "a.en", tmp_path / "a.de")
    assert [*pairs.texts[0]] == ["one", "two \u2028 2", "three"], "a line ends at a line feed and nowhere else"
    assert [*pairs.texts[1]] == ["eins", "zwei\x0c2", "drei"]
    assert pairs.location(2, side=1) == f"{tmp_path / 'a.de'}:3"


def test_folder_of_splits(tmp_path):
    write(tmp_path, train_en=lines("one"), train_de=lines("eins"), dev_en=lines("one", 5), dev_de=lines("eins", 5))
    (tmp_path / "test.en.gz").write_bytes(gzip.compress(lines("one", 7).encode()))
    write(tmp_path, test_de=lines("eins", 7), train_fr="un\n", README_md="\n")
    data = ready(sets.parallel(path=tmp_path, source="en", target="de", tokenizer="space"))
    assert data.info.sizes == {"train": 40, "val": 5, "test": 7}
    assert data.splits["test"].texts[1][3] == "eins 3"
    assert (
        ready(sets.parallel(path=tmp_path, source="de", target="en", tokenizer="space")).splits["test"].texts[1][3] == "one 3"
    )


@pytest.mark.parametrize(
    ("files", "code", "values"),
    [
        ({"a_en": "x\ny\n", "b_de": "x\n"}, "data", ("T/a.en: 2 lines", "T/b.de: 1")),
        ({"a_en": "x\ny\n", "b_de": "x\n \t\n"}, "data", ("T/b.de:2: ",)),
        ({"a_en": "x\n\n", "b_de": "x\ny\n"}, "data", ("T/a.en:2: ",)),
        ({"a_en": "", "b_de": "x\n"}, "data", ("T/a.en: 0 lines",)),
        ({"b_de": "x\n"}, "missing", ("parallel: T/a.en",)),
        ({"a_en": "x\n", "b_de": "y\n"}, "data", ("T/a.en: val=0.05 of 1 ",)),
    ],
)
def test_invalid_files_raise(tmp_path, files, code, values):
    write(tmp_path, **files)
    with raises(code, *(value.replace("T/", f"{tmp_path}/") for value in values)):
        ready(sets.parallel(tmp_path / "a.en", tmp_path / "b.de"))


def test_same_source_and_target_raise(tmp_path):
    write(tmp_path, a_en=lines("one"))
    (tmp_path / "b.de").symlink_to(tmp_path / "a.en")
    for target in ("a.en", "b.de"):
        with raises("conflict", "a.en: "):
            ready(sets.parallel(tmp_path / "a.en", tmp_path / target))
    write(tmp_path, train_en=lines("one"))
    with raises("conflict", "train.en: "):
        ready(sets.parallel(path=tmp_path, source="en", target="en"))


@pytest.mark.parametrize(
    ("files", "code", "values"),
    [
        ({"val_en": "x\n", "val_de": "y\n"}, "missing", ("train.en", "'val.de', 'val.en'")),
        ({}, "missing", ("train.en", "nothing")),
        ({"train_en": "x\n"}, "missing", ("train.de", "train.en")),
        ({"train_en": "x\n", "train_de": "y\n", "dev_de": "y\n"}, "missing", ("dev.de ", ".en and .de")),
        ({"train_en": "x\n", "train_de": "y\n", "train_de_gz": ""}, "conflict", ("train.de and train.de.gz",)),
    ],
)
def test_invalid_folders_raise(tmp_path, files, code, values):
    write(tmp_path, **files)
    with raises(code, "parallel: ", *values):
        ready(sets.parallel(path=tmp_path, source="en", target="de"))


def pairs(count=100, **options):
    columns = {"first": [f"s{i}" for i in range(count)], "second": [f"t{i}" for i in range(count)]}
    return Table(columns, source=options.pop("name", "p"), **options)


@pytest.mark.parametrize(("count", "held"), [(2, 1), (10, 1), (100, 5), (1000, 50)])
def test_validation_pairs_are_fixed(count, held):
    found = with_validation({"train": pairs(count), "test": pairs(3)}, 0.05)
    assert list(found) == ["train", "val", "test"]
    assert len(found["val"]) == held
    assert sorted([*found["train"].texts[0], *found["val"].texts[0]]) == sorted(pairs(count).texts[0])
    assert table_digest(found) == table_digest(with_validation({"train": pairs(count), "test": pairs(3)}, 0.05))
    if count == 100:
        assert found["val"].texts[1] == ["t2", "t26", "t55", "t75", "t86"]


def write_splits(folder, *names, count=40, sides=("en", "de"), text="{} {}"):
    for name in names:
        for side in sides:
            content = "".join(text.format(f"{name}.{side}", i) + "\n" for i in range(count))
            (folder / f"{name}.{side}").write_text(content, encoding="utf-8")
    return folder


def stems(data):
    """Return the file of each split."""
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
    write_splits(tmp_path, *names, "newstest1999", "test_2018")
    assert stems(ready(getattr(published, preset)(tmp_path, tokenizer="space"))) == dict(
        zip(("train", "val", "test"), names, strict=True)
    )


def test_iwslt15_replaces_entities(tmp_path):
    write_splits(
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


def test_iwslt15_without_training_pairs(tmp_path):
    write_splits(tmp_path, "tst2012", "tst2013", sides=("en", "vi"))
    data = ready(published.iwslt15(tmp_path, tokenizer="space"))
    assert data.info.sizes == {"train": 38, "val": 2, "test": 40}
    assert stems(data) == {"train": "tst2012", "val": "tst2012", "test": "tst2013"}
    for side in ("en", "vi"):
        (tmp_path / f"tst2012.{side}").unlink()
    with raises("missing", "iwslt15:", "train.vi"):
        ready(published.iwslt15(tmp_path, source="vi", target="en"))


@pytest.mark.parametrize(
    ("name", "path"), [("iwslt15", None), ("shakespeare_style", None), ("multi30k", "empty"), ("wmt14", "empty")]
)
def test_sets_without_a_copy_on_the_hub_require_a_path(tmp_path, name, path):
    with raises("invalid" if path is None else "missing", name, "train"):
        ready(getattr(published, name)(*([] if path is None else [tmp_path])))
