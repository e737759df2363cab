"""Contract of all data modules: the order depends on seed and epoch only, in any process, and can be resumed."""

import copy
import pickle
import random

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from zoo_datasets.vectors import linear_map

from zoo.data import ImageData, Split, ready
from zoo.data.corpus import CorpusData, Text
from zoo.data.parallel import ParallelData
from zoo.data.tabular import from_arrays
from zoo.data.text import Table, TextData

DRAWS = random.Random(0)
TEXTS = [" ".join(DRAWS.choice("uvwxyz") for _ in range(DRAWS.randint(1, 12))) for _ in range(80)]
TARGETS = [text.upper() for text in TEXTS]
ROWS, PAIRS = Table({"text": TEXTS, "label": list("ab") * 40}), Table({"first": TEXTS, "second": TARGETS})
PIXELS = np.random.RandomState(0).randint(0, 256, (40, 8, 8, 3)).astype(np.uint8)
PLAY = " ".join(f"the {i}th word" for i in range(120))


def images(augment, **options):
    return ImageData({"train": Split(PIXELS, np.arange(40) % 2)}, "ab", test=0.1, augment=augment, **options)


MODULES = {
    "images": lambda **options: images("none", **options),
    "images-shift": lambda **options: images("shift", **options),
    "images-timm": lambda **options: images("timm", **options),
    "texts": lambda **options: TextData({"train": ROWS}, "text_classification", **options),
    "parallel": lambda **options: ParallelData({"train": PAIRS}, tokenizer="space", **options),
    "corpus": lambda **options: CorpusData({"train": Text(PLAY)}, max_length=16, **options),
    "streams": lambda **options: CorpusData({"train": Text(PLAY)}, max_length=16, stream=True, **options),
    "vectors": lambda **options: linear_map(3, rows=60, **options),
    "table": lambda **options: from_arrays(PIXELS.reshape(40, -1)[:, :5], np.arange(40) % 3, **options),
}
every_module = pytest.mark.parametrize("kind", MODULES)


def made(kind, **options):
    return ready(MODULES[kind](**{"batch_size": 5, **options}))


def plain(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def epochs(data, count=2):
    loader = data.train_dataloader()
    return [[plain(batch) for batch in loader] for _ in range(count)]


def generators():
    numpy_state = np.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), numpy_state[1].tolist(), numpy_state[2]


@every_module
def test_order_depends_on_seed_and_epoch_only(kind, capfd):
    before = copy.deepcopy(generators())
    data = made(kind, seed=3)
    first, second = epochs(data)
    assert generators() == before
    torch.manual_seed(1)
    assert epochs(made(kind, seed=3)) == [first, second]
    assert epochs(made(kind, seed=3, num_workers=2)) == [first, second]
    other = made(kind, seed=4)
    assert (other.info, other.files) == (data.info, data.files)
    if kind == "streams":
        assert epochs(other) == [first, first], "never shuffled"
    else:
        assert first != second
        assert first != epochs(other)[0]
    for split in data.info.sizes:
        if split != "train":
            loader = data.eval_dataloader(split)
            batches = [plain(batch) for batch in loader]
            assert batches == [plain(batch) for batch in loader] == [plain(batch) for batch in other.eval_dataloader(split)]
    assert "TOKENIZERS_PARALLELISM" not in capfd.readouterr().err


@every_module
def test_loader_resumes_within_an_epoch(kind):
    first, second = epochs(made(kind))
    running, states = made(kind).train_dataloader(), []
    for _ in range(2):
        for _ in running:
            states.append(running.state_dict())
    assert states[len(first) - 1] == {"epoch": 1, "batches": 0}
    for number in (1, len(first), len(first) + 2):
        fresh = made(kind).train_dataloader()
        fresh.load_state_dict(states[number - 1])
        assert fresh.state_dict() == states[number - 1]
        assert [plain(batch) for batch in fresh] == (first[number:] or second[number - len(first) :])
    late = made(kind).train_dataloader()
    late.load_state_dict({"epoch": 0, "batches": 1})
    late.sampler.set_epoch(1)
    assert [plain(batch) for batch in late] == second, "a state of another epoch skips nothing"


@every_module
def test_datasets_can_be_pickled(kind):
    loader = made(kind).train_dataloader()
    keys = next(iter(loader.batch_sampler)) if loader.batch_size else next(iter(loader.sampler))
    again = pickle.loads(pickle.dumps(loader.dataset))
    fetch = "__getitems__" if loader.batch_size else "__getitem__"
    assert plain(getattr(again, fetch)(keys)) == plain(getattr(loader.dataset, fetch)(keys))


@every_module
def test_epoch_yields_every_row_once(kind):
    if kind == "streams":
        return  # read in order
    data = made(kind)
    sampler = data.train_dataloader().sampler
    for _ in range(2):
        rows = [row for key in sampler for row in (key if isinstance(key, list) else [key])]
        assert len(set(rows)) == len(rows)
        if kind != "corpus":
            assert sorted(row % len(rows) for row in rows) == list(range(data.info.sizes["train"]))


class Listener(LightningModule):
    def __init__(self):
        super().__init__()
        self.weight, self.batches = torch.nn.Parameter(torch.zeros(())), []

    def training_step(self, batch, _):
        self.batches.append(plain(batch))
        return self.weight**2

    def validation_step(self, batch, _):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("kind", "workers"), [("texts", 0), ("corpus", 2), ("streams", 0)])
def test_resumed_trainer_gets_the_remaining_batches(tmp_path, kind, workers):
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)

    def run(ckpt_path=None):
        keep = ModelCheckpoint(tmp_path, filename="{step}", save_top_k=-1, every_n_train_steps=1)
        listener = Listener()
        trainer = Trainer(accelerator="cpu", max_epochs=2, callbacks=[keep], num_sanity_val_steps=0, **quiet)
        trainer.fit(listener, made(kind, num_workers=workers), ckpt_path=ckpt_path)
        return listener.batches

    whole = run()
    assert whole == [batch for epoch in epochs(made(kind)) for batch in epoch]
    for step in (1, len(whole) // 2, len(whole) // 2 + 2):
        assert run(tmp_path / f"step={step}.ckpt") == whole[step:], step
