import pytest
from zoo_datasets import published

from tests.errors import raises
from zoo.data.module import ready


def write(folder, *names, count=40, sides=("en", "de"), text="{} {}"):
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
    write(tmp_path, *names, "newstest1999", "test_2018")
    assert stems(ready(getattr(published, preset)(tmp_path, tokenizer="space"))) == dict(
        zip(("train", "val", "test"), names, strict=True)
    )


def test_iwslt15_replaces_entities(tmp_path):
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


def test_iwslt15_without_training_pairs(tmp_path):
    write(tmp_path, "tst2012", "tst2013", sides=("en", "vi"))
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
