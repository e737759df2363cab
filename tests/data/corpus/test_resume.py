import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from zoo.data import ready
from zoo.data.corpus import CorpusData as unopened_CorpusData
from zoo.data.corpus import Text


def CorpusData(*args, **options):
    return ready(unopened_CorpusData(*args, **options))


WORDS = " ".join(f"the {i}th word" for i in range(150))


def data(**options):
    return CorpusData({"train": Text(WORDS)}, max_length=16, **{"batch_size": 12, **options})


def seen(batches):
    return [tokens.tolist() for tokens, _, _ in batches]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_fresh_loader_goes_on_with_the_next_batch(workers, stream):
    whole = data(stream=stream).train_dataloader()
    epochs = [seen(whole) for _ in range(3)]
    length = len(whole)
    assert length >= 6
    running = data(stream=stream, num_workers=workers).train_dataloader()
    states = {}
    for epoch in (0, 1):
        for k, _ in enumerate(running):
            states[epoch, k + 1] = running.state_dict()
    assert states[0, length] == {"epoch": 1, "batches": 0}
    for epoch, k in ((0, 1), (1, length // 2), (1, length - 1), (1, length)):
        fresh = data(stream=stream, num_workers=workers).train_dataloader()
        fresh.load_state_dict(states[epoch, k])
        assert fresh.state_dict() == states[epoch, k]
        expected = [*epochs[epoch][k:], *epochs[epoch + 1]]
        assert (seen(fresh) + (seen(fresh) if k < length else []))[: len(expected)] == expected


def test_a_state_of_another_epoch_skips_nothing():
    whole = data().train_dataloader()
    epochs = [seen(whole) for _ in range(2)]
    fresh = data().train_dataloader()
    fresh.load_state_dict({"epoch": 0, "batches": 3})
    fresh.sampler.set_epoch(1)
    assert seen(fresh) == epochs[1]


class Watch(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(1, 1), []

    def training_step(self, batch, index):
        self.seen.append((self.current_epoch, batch[0].tolist()))
        return self.layer(batch[1].float().mean().reshape(1)).sum()

    def validation_step(self, batch, index):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.0)


def run(folder, ckpt_path=None, workers=0, stream=False, **options):
    module = Watch()
    keep = ModelCheckpoint(folder, filename="{step}", save_top_k=-1, every_n_train_steps=options.pop("every", None))
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = Trainer(callbacks=[keep], default_root_dir=folder, num_sanity_val_steps=0, **quiet, **options)
    trainer.fit(module, data(num_workers=workers, stream=stream), ckpt_path=ckpt_path)
    return module.seen


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(("workers", "stream"), [(0, False), (2, False), (0, True)])
def test_a_resumed_run_sees_the_rest(tmp_path, workers, stream):
    whole = run(tmp_path / "whole", max_epochs=3, every=1, workers=workers, stream=stream)
    length = len(whole) // 3
    for step in (1, length - 1, length, length + 2):
        path = tmp_path / "whole" / f"step={step}.ckpt"
        assert run(tmp_path / "again", path, workers, stream, max_epochs=3) == whole[step:], step


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("limit", [1.0, 3])
def test_a_run_stopped_after_an_epoch_goes_on_with_the_next(tmp_path, limit):
    whole = run(tmp_path / "whole", max_epochs=3, limit_train_batches=limit)
    length = len(whole) // 3
    for epoch in (1, 2):
        path = tmp_path / "whole" / f"step={epoch * length}.ckpt"
        assert run(tmp_path / "again", path, max_epochs=3, limit_train_batches=limit) == whole[epoch * length :]
