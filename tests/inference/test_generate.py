"""Generation with trained models: texts that continue or answer a prompt, at once or streamed in pieces."""

import random
from pathlib import Path

import pytest

import zoo
from tests.errors import raises
from tests.generation import NUMBERS, RUNS
from zoo.data.tokenizer import Tokenizer
from zoo.inference.model import Model
from zoo.nn.weight import Weight
from zoo.tasks.language import UNFINISHED
from zoo.tasks.options import Decoding

BATCH = 64
MODELS = ("gpt", "xl", "bytes", "small")
PROMPTS = ["the", "a café", "naïve and old", "at"]
WAYS = {
    "greedy": Decoding(temperature=0.0, length=12),
    "drawn": Decoding(temperature=1.0, length=12, seed=3),
    "nucleus": Decoding(temperature=2.5, top_p=0.9, top_k=9, repetition_penalty=1.2, length=12),
    "beam": Decoding(beam=3, length=12),
}
GREEDY, DRAWN = WAYS["greedy"], WAYS["drawn"]


@pytest.fixture(scope="module")
def place(generative_run) -> Path:
    """The folder of the runs."""
    for name in RUNS:
        folder = generative_run(name).parent
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
    with raises("invalid", "folded"):
        zoo.save(folded, tmp_path / "folder")


def predict(run, inputs, **options):
    return zoo.load(run).predict_iter(inputs, **options)


def samples(model: Model, prompt: str, count: int, options: Decoding) -> list[str]:
    """Generate several texts for a prompt."""
    return generate(model, [prompt] * count, options)


def generate(model: Model, prompts: list[str], options: Decoding) -> list[str]:
    """Generate one text for each prompt."""
    return model.generative(vars(options)).generate(prompts)


def stream(model: Model, prompt: str, options: Decoding):
    return model.generate(prompt, stream=True, **vars(options))


every_way = pytest.mark.parametrize("way", WAYS)
every_model = pytest.mark.parametrize("name", MODELS, indirect=True)
# --- generated texts ---


def test_the_model_has_learned_to_translate(models, place):
    """A control: the texts compared below are not random."""
    sources, targets = ((place / f"en-fr/val.{ending}").read_text().splitlines() for ending in ("en", "fr"))
    answers = generate(models["pairs"], sources, Decoding())
    assert sum(answer == target for answer, target in zip(answers, targets, strict=True)) >= 8


@every_way
def test_the_pieces_of_a_stream_are_the_text(model, name, way):
    prompt, options = prompt_of(model), WAYS[way]
    pieces = list(stream(model, prompt, options))
    assert ["".join(pieces)] == model.generate(prompt, **vars(options))
    if way != "beam" and name in ("gpt", "xl", "small"):  # every token is a character
        assert [len(piece) for piece in pieces] == [1] * 12 + [0]


def test_streaming_decodes_only_the_newest_tokens(models, monkeypatch):
    decode, lengths = Tokenizer.decode, []
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: lengths.append(len(ids)) or decode(self, ids))
    pieces = list(stream(models["xl"], "the", Decoding(length=60)))
    assert len("".join(pieces)) == 60
    assert max(lengths) <= 3


def test_pieces_of_bytes_end_with_whole_characters(models):
    """An incomplete character waits for its next byte; invalid bytes are in the last piece."""
    model, incomplete = models["bytes"], 0
    for seed in range(12):
        options = Decoding(temperature=1.0, length=25, seed=seed)
        *pieces, last = stream(model, "the caf", options)
        assert "".join([*pieces, last]) == samples(model, "the caf", 1, options)[0]
        assert not any(piece.endswith(UNFINISHED) for piece in pieces)
        incomplete += len(pieces) < 25
    assert incomplete


@every_model
@pytest.mark.parametrize("way", ["greedy", "beam"])
def test_a_batch_of_prompts_equals_single_prompts(model, way):
    options = WAYS[way]
    assert generate(model, PROMPTS, options) == [samples(model, prompt, 1, options)[0] for prompt in PROMPTS]


def test_transformer_xl_generates_texts_longer_than_its_memory(models):
    assert len(samples(models["xl"], "the", 1, Decoding(length=100))[0]) == 100
    assert len(samples(models["xl"], "the", 1, Decoding())[0]) == 256
    assert len("".join(stream(models["xl"], "the", Decoding(length=100)))) == 100


@pytest.mark.parametrize("name", ["gpt", "xl", "pairs"])
def test_a_list_of_prompts_returns_a_list_of_texts_for_each(models, name):
    model, prompts = models[name], ["one", "one two three"] if name == "pairs" else ["the", "the café"]
    each = [model.generate(prompt, temperature=0.0, length=6) for prompt in prompts]
    assert model.generate(prompts, temperature=0.0, length=6) == each
    assert model.generate(tuple(prompts), temperature=0.0, length=6) == each
    drawn = model.generate(prompts, 3, temperature=1.0, length=4)
    assert [len(texts) for texts in drawn] == [3, 3]
    assert model.generate([], length=4) == []


@pytest.mark.parametrize(
    ("prompt", "options", "value"),
    [
        (3, {}, "int"),
        ({"prompt": "the"}, {}, "dict"),
        (["the"], {"stream": True}, "stream"),
        ("the", {"stream": True, "num_samples": 2}, "num_samples"),
        ("the", {"num_samples": 0}, "num_samples=0"),
    ],
)
def test_invalid_arguments(models, prompt, options, value):
    with raises("invalid", value):
        models["gpt"].generate(prompt, **options)


def test_the_default_prompt(models):
    assert models["gpt"].task.default_prompt() == models["bytes"].task.default_prompt() == "\n"
    assert models["small"].task.default_prompt() == " "  # its training data have no newline
    for name in MODELS:
        model = models[name]
        expected = model.generate(model.task.default_prompt(), **vars(GREEDY))
        assert model.generate(**vars(GREEDY)) == model.generate("", **vars(GREEDY)) == expected
    for prompt in (None, "", ["one", ""]):
        with raises("missing", "--prompt"):
            models["pairs"].generate(prompt)


# --- errors ---


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize(
    ("name", "prompt", "options", "values"),
    [
        ("gpt", "the caf\N{SNOWMAN}", GREEDY, ["prompt 'the caf\N{SNOWMAN}'", "'\N{SNOWMAN}' is not", "leave it out"]),
        ("small", "cafe\N{COMBINING ACUTE ACCENT} the\nold", GREEDY, ["the old'", r"'\n'"]),
        ("gpt", "the " * 9, GREEDY, ["36 tokens", "max_length=32"]),
        ("gpt", "the", Decoding(length=30), ["3 tokens", "length=30", "max_length=32", "--length 29"]),
        ("pairs", "one", Decoding(top_k=3), ["top_k=3", "--temperature 1"]),
    ],
)
def test_errors_are_raised_before_generation(models, name, prompt, options, values, is_streamed):
    model = models[name]
    with raises("invalid", *values) as error:
        stream(model, prompt, options) if is_streamed else samples(model, prompt, 2, options)
    assert len(str(error.value)) < 250


# --- prediction line by line ---


def test_lines_are_answered_in_batches(place, models, tmp_path):
    draw = random.Random(3)
    sources = [" ".join(draw.choices(list(NUMBERS), k=draw.randrange(1, 5))) for _ in range(BATCH + 9)]
    sources[4] = sources[BATCH + 1] = ""
    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in sources))
    rows = list(predict(place / "pairs", [tmp_path / "lines.txt"]))
    assert [row["source"] for row in rows] == sources
    for row in (0, 5, BATCH - 1, BATCH, BATCH + 2, BATCH + 8):
        assert [rows[row]["target"]] == samples(models["pairs"], sources[row], 1, Decoding())
    assert rows[4]["target"] == rows[BATCH + 1]["target"] == ""


def test_a_line_that_is_too_long_is_named_or_truncated(place, models, tmp_path):
    lines = ["one", "", "two " * 9, "three"]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    (tmp_path / "long.txt").write_text("\n".join(["one", "", "two " * 39]))
    with raises("data", "long.txt:3: ", "tokens", "--truncate"):
        list(predict(place / "letters", [tmp_path / "long.txt"], on_bad_rows="error"))
    rows = list(predict(place / "pairs", [tmp_path / "lines.txt"], truncation=True))
    longest = "two " * (models["pairs"].tokenizer.max_length - 1)
    assert [rows[2]["target"]] == samples(models["pairs"], longest, 1, Decoding())
    assert [row["source"] for row in rows] == lines
