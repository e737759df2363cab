"""What a user can get wrong with texts: one line that says what, where and what to do, and nothing left behind."""

import pytest

BASE = ("fit", "--backbone", "fasttext(dim=8,hidden=8)", "--algebra", "quaternion")
BASE = (*BASE, "--trainer.max_epochs", "1", "--trainer.accelerator", "cpu")
TEXT = (*BASE, "--data", "text(path=text.tsv)")


@pytest.fixture(autouse=True)
def files(tmp_path, corpus):
    for kind in ("text", "pairs", "ranking"):
        corpus(tmp_path / f"{kind}.tsv", kind)
    (tmp_path / "glove.txt").write_text("film 1 2 3\nbad 1 2 3\ngood 1 2\n")


@pytest.mark.parametrize(
    ("flags", "needles"),
    [
        (["--embedding", "tabel"], ["unknown embedding 'tabel'", "did you mean 'table'?"]),
        (["--embedding", "complex_ordr"], ["did you mean 'complex_order'?"]),
        (["--embedding", "table(stdd=1)"], ["unknown option 'stdd' of table", "did you mean 'std'?"]),
        (["--embedding", "complex_order(amplitude=words)"], ["words"]),
        (["--vectors", "nowhere.txt"], ["nowhere.txt", "does not exist"]),
        (["--vectors", "glove.txt"], ["glove.txt:3"]),
        (["--folds", "1"], ["folds=1", "2 or more"]),
        (["--folds", "x"], ["folds", "whole number", "x"]),
        (["--fold", "3"], ["unknown flag --fold", "--folds"]),
        (["--vector", "glove.txt"], ["unknown flag --vector", "--vectors"]),
        (["--data", "tex(path=text.tsv)"], ["unknown data set 'tex'", "did you mean 'text'?"]),
        (["--data", "text"], ["text needs the option 'path'"]),
        (["--data", "text(path=none.tsv)"], ["none.tsv", "does not exist"]),
        (["--data", "text(path=text.tsv, txt=0)"], ["unknown option 'txt' of text", "did you mean 'text'?"]),
        (["--data", "text(path=text.tsv, text=review)"], ["text.tsv:1", "'review'", "'text'", "'label'"]),
        (["--data", "text(path=text.tsv, max_length=0)"], ["max_length=0"]),
        (["--data", "text(path=text.tsv, tokenizer=words)"], ["tokenizer='words'", "word, space, char, bpe"]),
        (["--data", "text(path=text.tsv, vocab=2)"], ["vocab=2"]),
        (["--data", "text(path=text.tsv, folds=1)"], ["folds=1"]),
        (["--data", "text(path=text.tsv, fold=10)"], ["fold=10"]),
        (["--data", "ranking(path=ranking.tsv, label=answer)"], ["ranking.tsv:2", "label"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("--") else "",
)
def test_one_line(refused, flags, needles):
    line = refused(*TEXT, *flags)
    assert [needle for needle in needles if needle not in line] == []


@pytest.mark.parametrize(
    ("backbone", "data", "needles"),
    [
        ("fasttext", "digits", ["fasttext reads texts", "'digits' holds images", "timm, vit can"]),
        ("vit", "text(path=text.tsv)", ["vit reads images", "holds texts", "fasttext, lstm, transformer can"]),
        (
            "timm/resnet18",
            "pairs(path=pairs.tsv)",
            ["timm/resnet18 reads images", "holds pairs of texts", "decomposable_attention"],
        ),
        ("decomposable_attention", "text(path=text.tsv)", ["reads pairs of texts", "holds texts", "fasttext"]),
        ("linear", "text(path=text.tsv)", ["linear reads vectors", "holds texts"]),
        ("lstm", "hamilton(rows=100)", ["lstm reads texts", "holds vectors", "linear", "mlp"]),
    ],
)
def test_a_backbone_on_data_that_it_does_not_read(refused, backbone, data, needles):
    for command in ("fit", "info"):
        line = refused(command, "--backbone", backbone, "--algebra", "real", "--data", data)
        assert [needle for needle in needles if needle not in line] == []


@pytest.mark.parametrize("flag", [("--embedding", "table"), ("--vectors", "glove.txt")], ids=lambda flag: flag[0])
@pytest.mark.parametrize(
    ("backbone", "data", "kind"), [("vit(dim=16,depth=1)", "digits", "images"), ("linear", "hamilton(rows=100)", "vectors")]
)
def test_what_is_for_text_alone(refused, flag, backbone, data, kind):
    line = refused(*BASE, "--backbone", backbone, "--data", data, *flag)
    assert line == f"{flag[0]} is for text, and '{data}' holds {kind}"


def test_a_split_of_its_own(refused, tmp_path):
    (tmp_path / "data").mkdir()
    for split in ("train", "test"):
        (tmp_path / "data" / f"{split}.tsv").write_bytes((tmp_path / "text.tsv").read_bytes())
    line = refused(*BASE, "--data", "text(path=data)", "--folds", "3")
    assert line == "'text(path=data)' comes with its own split: leave --folds out"
    assert refused(*BASE, "--backbone", "vit", "--data", "digits", "--folds", "3").startswith(
        "'digits' comes with its own split"
    )


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b"\tyes", "text.tsv:4: empty text"),
        (b"a film\t", "text.tsv:4: empty label"),
        (b"a film", "text.tsv:4: 1 fields"),
        (b"a\tfilm\tyes", "text.tsv:4: 3 fields"),
        (b"caf\xe9\tyes", "text.tsv:4: byte 0xe9 is not UTF-8"),
    ],
    ids=["empty", "label", "short", "long", "bytes"],
)
def test_a_bad_row(refused, tmp_path, row, said):
    lines = (tmp_path / "text.tsv").read_bytes().splitlines()
    lines[3] = row
    (tmp_path / "text.tsv").write_bytes(b"\n".join(lines))
    assert said in refused(*TEXT)


def test_a_label_that_the_training_split_has_not(refused, tmp_path):
    (tmp_path / "data").mkdir()
    rows = (tmp_path / "text.tsv").read_text()
    (tmp_path / "data" / "train.tsv").write_text(rows)
    (tmp_path / "data" / "test.tsv").write_text("text\tlabel\na film\tno\na plot\tmaybe\n")
    assert "data/test.tsv:3: label 'maybe' is not in the training split" in refused(*BASE, "--data", "text(path=data)")
