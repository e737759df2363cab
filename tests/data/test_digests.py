"""Embedded and generated data sets never change: their digests, and the order of training rows for seed 0."""

import hashlib

import pytest
import torch

from zoo import registry
from zoo.data import ready

PINNED = [
    # data, SHA-256 of the content, and of the order of rows in epochs 0 and 1 with batches of 16
    ("digits", "412c2c70d4271dac", "8a6b753a5a68f5c2", "72bd36097d340814"),
    ("glosses(limit=300)", "0de4a9fbd001a797", "ff44c8d85f9b4f63", "39f3377b8014a85a"),
    ("glosses(task=pairs)", "3f16f36c8ac1774f", "3790d78c37a891b1", "5603cec1b89009dc"),
    ("glosses(task=seq2seq)", "b8e9b54d1945c17c", "fb952acd45b7fc51", "c402f4f07349de07"),
    ("agreement", "400a4f465899dc63", "1b418441bd7a57f2", "837edaa3249e827c"),
    ("agreement(attractors=2,rows=1000)", "a54d87869117ea37", "13e26b50047789cf", "57774948c532a008"),
    ("entailment", "794746f77095df91", "80479e711ce95d22", "e62687a032ec2402"),
    ("hamilton", "7fc39509b646580a", "2ac5266163b98a55", "663f3ea1db026c9b"),
    ("rotation", "a8f90a6360f27f31", "2ac5266163b98a55", "663f3ea1db026c9b"),
    ("mlu(train=5000,val=100,test=200)", "6a6624ed9175211c", "01bbe0dbe52bc471", "1dc839af90e32ed8"),
]


def hash_keys(keys):
    sha = hashlib.sha256()

    def add(value):
        if isinstance(value, torch.Tensor):
            sha.update(str((value.dtype, tuple(value.shape))).encode())
            sha.update(value.numpy().tobytes())
        elif isinstance(value, (list, tuple)):
            for part in value:
                add(part)
        else:
            sha.update(repr(value).encode())

    add(keys)
    return sha.hexdigest()[:16]


@pytest.mark.parametrize(("spec", "content", "first", "second"), PINNED, ids=[row[0] for row in PINNED])
def test_content_and_order_are_pinned(spec, content, first, second):
    data = ready(registry.create("zoo.datasets", spec, batch_size=16, num_workers=0, seed=0, stream=False))
    sampler = data.train_dataloader().sampler
    assert data.info.sha256.startswith(content)
    assert [hash_keys(list(sampler)) for _ in range(2)] == [first, second]
