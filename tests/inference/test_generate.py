"""Texts that trained networks write: on from a prompt or in answer to it, at once or piece by piece."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import zoo
from zoo.data.text.tokenizer import Tokenizer
from zoo.errors import InputError
from zoo.inference.model import Model
from zoo.layers.weight import Weight
from zoo.tasks.decoding.options import Decoding
from zoo.tasks.generation import UNFINISHED

BATCH = 64

WORDS = ["the", "café", "was", "naïve", "and", "old,", "a", "señor", "ate", "œufs", "at", "noon"]
SIZE = "dim=16, depth=1, heads=2, ffn=32"
TRAINER = {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False, "limit_train_batches": 20}
RUNS = {
    "gpt": (f"gpt({SIZE})", "corpus(path='{place}/text.txt', max_length=32)"),
    "xl": (f"transformer_xl({SIZE})", "corpus(path='{place}/text.txt', max_length=16)"),
    "bytes": (f"gpt({SIZE}, positions=rotary)", "corpus(path='{place}/text.txt', max_length=32, tokenizer=bpe, vocab=264)"),
    "small": (f"gpt({SIZE})", "corpus(path='{place}/words.txt', max_length=32, lowercase=true)"),
    "pairs": (f"transformer({SIZE}, dropout=0.0)", "parallel(path='{place}/en-fr', source=en, target=fr, tokenizer=space)"),
    "letters": (
        f"transformer({SIZE}, positions=learned)",
        "parallel(path='{place}/en-fr', source=en, target=fr, tokenizer=bpe, vocab=280)",
    ),
}
NUMBERS = {"one": "un", "two": "deux", "three": "trois", "four": "quatre", "five": "cinq", "six": "six"}
MODELS, ANSWERS = ("gpt", "xl", "bytes", "small"), ("pairs", "letters")
PROMPTS = ["the", "a café", "naïve and old", "at"]
WAYS = {
    "greedy": Decoding(temperature=0.0, length=12),
    "drawn": Decoding(temperature=1.0, length=12, seed=3),
    "nucleus": Decoding(temperature=2.5, top_p=0.9, top_k=9, repetition_penalty=1.2, length=12),
    "beam": Decoding(beam=3, length=12),
}
GREEDY, DRAWN = WAYS["greedy"], WAYS["drawn"]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """The folder of the data and of the runs of this module."""
    folder, draw = tmp_path_factory.mktemp("generate"), random.Random(0)
    text = "".join(" ".join(draw.choices(WORDS, k=6)) + "\n" for _ in range(150))
    (folder / "text.txt").write_text(text, encoding="utf-8")
    (folder / "words.txt").write_text(text.replace("\n", " ").title(), encoding="utf-8")
    (folder / "en-fr").mkdir()
    for split, count in (("train", 200), ("val", 20)):
        rows = [draw.choices(list(NUMBERS), k=draw.randrange(1, 5)) for _ in range(count)]
        (folder / "en-fr" / f"{split}.en").write_text("".join(" ".join(row) + "\n" for row in rows))
        (folder / "en-fr" / f"{split}.fr").write_text("".join(" ".join(map(NUMBERS.get, row)) + "\n" for row in rows))
    for name, (backbone, data) in RUNS.items():
        trainer = TRAINER | ({"max_epochs": 20} if name == "pairs" else {})
        options = {"data": data.format(place=folder), "batch_size": 8, "optimizer": {"lr": 0.01}, "trainer": trainer}
        zoo.fit(backbone=backbone, algebra="quaternion", run_dir=str(folder / name), **options)
    return folder


@pytest.fixture(scope="module")
def models(place) -> dict[str, Model]:
    return {name: zoo.load(place / name) for name in RUNS}


@pytest.fixture(params=RUNS)
def name(request) -> str:
    return request.param


@pytest.fixture
def model(models, name) -> Model:
    return models[name]


def prompt_of(model: Model) -> str:
    return "one three two" if not model.task.continues_prompt else "the café"


def test_a_folded_model_generates_the_same(model, tmp_path):
    folded = zoo.fold(model)
    assert not any(isinstance(module, Weight) for module in folded.net.modules())
    assert folded.task.net is folded.net
    for way in (GREEDY, WAYS["beam"]):
        options = {key: value for key, value in vars(way).items() if value is not None}
        assert folded.generate(prompt_of(model), **options) == model.generate(prompt_of(model), **options)
    with pytest.raises(InputError, match="a folded network has no components to save"):
        zoo.save(folded, tmp_path / "folder")


def predict(run, inputs, **options):
    return zoo.load(run).predict_iter(inputs, **options)


def samples(model: Model, prompt: str, count: int, options: Decoding) -> list[str]:
    """Generate from one prompt, with all options said."""
    if count == 1:
        return model.generate(prompt, **vars(options))
    return model.generative(vars(options)).generate([prompt] * count)


def write(model: Model, prompts: list[str], options: Decoding) -> list[str]:
    return model.generative(vars(options)).generate(prompts)


def stream(model: Model, prompt: str, options: Decoding):
    return model.generate(prompt, stream=True, **vars(options))


def opening(model: Model, prompt: str | None) -> str:
    return prompt or model.task.default_prompt()


def check_samples(model: Model, count: int, options: Decoding) -> None:
    model.generative(vars(options)).check_samples(count)


every_way = pytest.mark.parametrize("way", WAYS)
every_model = pytest.mark.parametrize("name", MODELS, indirect=True)
every_answer = pytest.mark.parametrize("name", ANSWERS, indirect=True)


# --- what is written ---


@every_model
def test_a_greedy_text_is_that_of_reading_everything_anew(model, name):
    """Of the memory nothing shows: prompt and text together are shorter than it."""
    (prompt, *text) = (
        model.tokenizer.encode(["the ca"])[0].tolist(),
        *samples(model, "the ca", 1, Decoding(temperature=0.0, length=8)),
    )
    written = list(prompt)
    for _ in range(8):
        with torch.no_grad():
            logits = model.net(torch.tensor([written]))[0, -1]
        logits[:2] = -torch.inf
        written.append(int(logits.argmax()))
    assert text == [model.tokenizer.decode(written[len(prompt) :])]


def test_answers_are_learned_and_end_by_themselves(models, place):
    """The control of all comparisons below."""
    sources, wanted = ((place / f"en-fr/val.{ending}").read_text().splitlines() for ending in ("en", "fr"))
    said = write(models["pairs"], sources, Decoding())
    assert sum(one == other for one, other in zip(said, wanted, strict=True)) >= 8


@every_way
def test_pieces_are_the_text(model, name, way):
    prompt, options = prompt_of(model), WAYS[way]
    pieces = list(stream(model, prompt, options))
    assert "".join(pieces) == samples(model, prompt, 1, options)[0]
    if way != "beam" and name in ("gpt", "xl", "small"):  # there every token is a letter, and a piece
        assert [len(piece) for piece in pieces] == [1] * 12 + [0]


def test_a_long_text_is_not_decoded_again_for_every_piece(models, monkeypatch):
    decode, lengths = Tokenizer.decode, []
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: lengths.append(len(ids)) or decode(self, ids))
    pieces = list(stream(models["xl"], "the", Decoding(length=60)))
    assert len("".join(pieces)) == 60
    assert max(lengths) <= 3
    generators, generator = [], torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda *args: generators.append(args) or generator(*args))
    list(stream(models["xl"], "the", Decoding(length=60, temperature=1.0)))
    assert len(generators) == 1


def test_pieces_of_bytes_are_whole_letters(models):
    """Half a letter is kept back; bytes that make no letter at all come in the end, as in the whole text."""
    model, held = models["bytes"], 0
    for seed in range(12):
        options = Decoding(temperature=1.0, length=25, seed=seed)
        *pieces, last = stream(model, "the caf", options)
        assert "".join([*pieces, last]) == samples(model, "the caf", 1, options)[0]
        assert not any(piece.endswith(UNFINISHED) for piece in pieces)
        held += len(pieces) < 25
    assert held


@pytest.mark.parametrize("way", ["drawn", "nucleus"])
def test_a_seed_decides(model, way):
    """How sure a trained network is depends on the machine that trained it; at 1e4 all tokens are alike."""
    prompt = prompt_of(model)
    for options in (WAYS[way], replace(WAYS[way], temperature=1e4)):
        first = samples(model, prompt, 3, options)
        assert samples(model, prompt, 3, options) == first
        assert samples(model, prompt, 1, options) == first[:1]
    assert len(set(first)) > 1
    others = {tuple(samples(model, prompt, 3, replace(options, seed=seed))) for seed in range(10, 14)}
    assert len(others - {tuple(first)}) >= 3


def test_writing_leaves_the_random_numbers_of_others_alone(models):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    samples(models["gpt"], "the", 2, DRAWN)
    assert torch.equal(torch.rand(3), expected)


@every_model
@pytest.mark.parametrize("way", ["greedy", "beam"])
def test_prompts_together_are_prompts_one_by_one(model, way):
    options = WAYS[way]
    assert write(model, PROMPTS, options) == [samples(model, prompt, 1, options)[0] for prompt in PROMPTS]


@every_answer
@pytest.mark.parametrize("way", ["greedy", "beam"])
def test_sources_together_are_sources_one_by_one(model, way):
    sources, options = ["one", "six two one one", "three four", "five"], WAYS[way]
    assert write(model, sources, options) == [samples(model, source, 1, options)[0] for source in sources]


def test_a_network_that_remembers_writes_on_and_on(models):
    """Longer than its memory and any piece that it was trained on."""
    assert len(samples(models["xl"], "the", 1, Decoding(length=100))[0]) == 100
    assert len(samples(models["xl"], "the", 1, Decoding())[0]) == 256
    assert len("".join(stream(models["xl"], "the", Decoding(length=100)))) == 100


def test_an_answer_is_no_longer_than_any_text_that_was_read(models):
    model = models["pairs"]
    longest = model.tokenizer.max_length
    lengths = {len(text.split()) for text in samples(model, "one two", 60, Decoding(temperature=50.0))}
    assert max(lengths) == longest < 8
    assert max(len(text.split()) for text in samples(model, "one two", 60, Decoding(temperature=50.0, length=30))) > longest


@pytest.mark.parametrize("name", ["gpt", "xl", "pairs"])
def test_several_prompts_have_a_list_of_texts_each(models, name):
    model, prompts = models[name], ["one", "one two three"] if name == "pairs" else ["the", "the café"]
    each = [model.generate(prompt, temperature=0.0, length=6) for prompt in prompts]
    assert model.generate(prompts, temperature=0.0, length=6) == each
    assert model.generate(tuple(prompts), temperature=0.0, length=6) == each
    drawn = model.generate(prompts, 3, temperature=1.0, length=4)
    assert [len(texts) for texts in drawn] == [3, 3]
    assert model.generate([], length=4) == []


def test_what_is_no_prompt_is_refused(models):
    model = models["gpt"]
    said = "give one text, or a list of texts"
    assert refusal(model.generate, 3) == f"a prompt of type int: {said}"
    assert refusal(model.generate, ["the", 3]) == f"a prompt of type int: {said}"
    assert refusal(model.generate, {"prompt": "the"}) == f"a prompt of type dict: {said}"
    assert refusal(lambda: model.generate(["the"], stream=True)) == "one text is streamed at a time: give one prompt"
    assert refusal(model.generate, "the", 0) == "num_samples=0: use a whole number from 1"
    with pytest.raises(InputError, match="this model answers a text"):
        models["pairs"].generate(["one", ""])


def test_nothing_to_begin_with(models):
    assert opening(models["gpt"], None) == opening(models["gpt"], "") == opening(models["bytes"], None) == "\n"
    assert opening(models["gpt"], "the") == opening(models["pairs"], "the") == "the"
    assert opening(models["small"], None) == " "  # its text has no lines
    for name in MODELS:
        assert samples(models[name], opening(models[name], None), 1, GREEDY)[0]
    with pytest.raises(InputError, match="this model answers a text: give it one with --prompt"):
        opening(models["pairs"], None)


# --- what is refused ---


def refusal(call, *arguments) -> str:
    with pytest.raises(InputError) as error:
        call(*arguments)
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


@pytest.mark.parametrize("call", ["stream", "samples"])
@pytest.mark.parametrize(
    ("name", "prompt", "options", "needles"),
    [
        ("gpt", "the caf\N{SNOWMAN}", GREEDY, ["prompt 'the caf\N{SNOWMAN}'", "never seen '\N{SNOWMAN}'", "leave it out"]),
        ("gpt", "THE", GREEDY, ["never seen 'T'"]),
        ("small", "THE \N{GREEK SMALL LETTER XI}", GREEDY, ["never seen '\N{GREEK SMALL LETTER XI}'"]),
        ("small", "cafe\N{COMBINING ACUTE ACCENT} the\nold", GREEDY, ["the old'", r"never seen '\n'"]),
        ("gpt", "the " * 9, GREEDY, ["a prompt of 36 tokens", "positions for 32"]),
        ("gpt", "the " * 8, GREEDY, ["a prompt of 32 tokens: this network has positions for 32; use a shorter prompt"]),
        ("gpt", "the", Decoding(length=30), ["a prompt of 3 tokens and 30 more", "positions for 32", "--length 29"]),
        ("gpt", "the", Decoding(beam=2, length=30), ["a prompt of 3 tokens and 30 more", "--length 29"]),
        ("gpt", "the", Decoding(beam=2, temperature=1.0), ["beam=2 and temperature=1.0: a beam draws nothing"]),
        ("gpt", "the", Decoding(top_p=0.0), ["top_p=0.0"]),
        ("gpt", "the", Decoding(length=0), ["length=0"]),
        ("letters", "one " * 39, GREEDY, ["prompt 'one one", " tokens, the model reads at most", "shorten the text"]),
        ("pairs", " ", GREEDY, ["prompt ''", "no words in this text"]),
        ("pairs", "one", Decoding(top_k=3), ["top_k=3, but nothing is drawn at a temperature of 0"]),
        ("letters", "one", Decoding(length=99), ["length=99: this network has positions for answers of"]),
    ],
)
def test_one_line_before_anything_is_written(models, name, prompt, options, needles, call):
    model = models[name]
    line = refusal(stream, model, prompt, options) if call == "stream" else refusal(samples, model, prompt, 2, options)
    assert [needle for needle in needles if needle not in line] == []
    assert len(line) < 250


def test_names_of_tokens_are_no_tokens(models):
    """A prompt cannot end a text, or begin one."""
    model = models["pairs"]
    assert samples(model, "one [EOS] two", 1, Decoding(length=5)) == samples(model, "one [PAD] two", 1, Decoding(length=5))
    assert samples(model, "one [EOS] two", 1, Decoding(length=5)) == samples(model, "one seven two", 1, Decoding(length=5))


def test_a_model_that_does_not_write(tmp_path, corpus):
    data = f"text(path='{corpus(tmp_path / 'text.tsv', 'text')}')"
    options = {"backbone": "fasttext(dim=8, hidden=8)", "algebra": "real", "data": data, "run_dir": str(tmp_path / "run")}
    zoo.fit(**options, trainer=TRAINER)
    line = refusal(zoo.load(tmp_path / "run").generate, "a film")
    assert line == "a model of text_classification generates no text: use zoo predict"


@every_model
def test_a_language_model_answers_nothing(place, name):
    line = refusal(lambda: list(predict(place / name, ["the café"])))
    assert line.endswith("use zoo generate RUN --prompt TEXT")


# --- line by line ---


def test_more_lines_than_are_answered_at_a_time(place, models, tmp_path):
    draw = random.Random(3)
    sources = [" ".join(draw.choices(list(NUMBERS), k=draw.randrange(1, 5))) for _ in range(BATCH + 9)]
    sources[4] = sources[BATCH + 1] = ""
    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in sources))
    rows = list(predict(place / "pairs", [tmp_path / "lines.txt"]))
    assert [row["source"] for row in rows] == sources
    for row in (0, 5, BATCH - 1, BATCH, BATCH + 2, BATCH + 8):
        assert [rows[row]["target"]] == samples(models["pairs"], sources[row], 1, Decoding())
    assert rows[4]["target"] == rows[BATCH + 1]["target"] == ""


def test_blank_lines_alone(place, tmp_path):
    (tmp_path / "lines.txt").write_text("\n" * (BATCH + 2))
    rows = list(predict(place / "pairs", [tmp_path / "lines.txt"]))
    assert rows == [{"source": "", "target": ""}] * (BATCH + 2)


def test_a_line_that_is_too_long_is_named_or_cut(place, models, tmp_path):
    lines = ["one", "", "two " * 9, "three"]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    (tmp_path / "long.txt").write_text("\n".join(["one", "", "two " * 39]))
    line = refusal(lambda: list(predict(place / "letters", [tmp_path / "long.txt"])))
    assert "long.txt:3: " in line
    assert "tokens, the model reads at most" in line
    assert "--truncate" in line
    rows = list(predict(place / "pairs", [tmp_path / "lines.txt"], truncation=True))
    room = models["pairs"].tokenizer.max_length - 1
    assert [rows[2]["target"]] == samples(models["pairs"], "two " * room, 1, Decoding())
    assert [row["source"] for row in rows] == lines


def test_a_translator_without_learned_positions_reads_any_length(place, models):
    words = "two " * 40
    (row,) = predict(place / "pairs", [words])
    assert row["target"] == samples(models["pairs"], words, 1, Decoding())[0]
    assert len(row["target"].split()) <= models["pairs"].info.max_length  # answers stay as long as any that it has read


def test_decoding_is_passed_on(place, models):
    sources = ["one two", "six six six"]
    options = Decoding(beam=3, length=2)
    found = [row["target"] for row in predict(place / "pairs", sources, **vars(options))]
    assert found == write(models["pairs"], sources, options)
    assert all(len(text.split()) <= 2 for text in found)
    drawn = Decoding(temperature=5.0, seed=1)
    found = [row["target"] for row in predict(place / "pairs", ["one two"] * 5, **vars(drawn))]
    assert len(set(found)) > 1
    assert "beam=0" in refusal(lambda: list(predict(place / "pairs", sources, beam=0)))


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("gpt", GREEDY, "3 samples: nothing is drawn at a temperature of 0"),
        ("pairs", Decoding(), "3 samples: nothing is drawn"),
        ("gpt", Decoding(beam=2), "3 samples: a beam finds one text"),
    ],
)
def test_one_and_the_same_text_is_not_written_several_times(models, name, options, said):
    with pytest.raises(InputError, match=said):
        check_samples(models[name], 3, options)
    check_samples(models[name], 1, options)
    check_samples(models[name], 3, Decoding(temperature=1.0))
