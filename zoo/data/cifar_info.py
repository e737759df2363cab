"""Where the two CIFAR sets lie on the Hub, and the names of their files and classes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cifar:
    """One of the two sets: where the Hub keeps it, the names of its binary files, and its classes."""

    name: str
    repository: str
    revision: str
    train_files: tuple[str, ...]
    test_file: str
    label_bytes: int
    classes: tuple[str, ...]


_TEN = "airplane automobile bird cat deer dog frog horse ship truck"

_HUNDRED = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""

CIFAR10 = Cifar(
    name="cifar10",
    repository="uoft-cs/cifar10",
    revision="0b2714987fa478483af9968de7c934580d0bb9a2",
    train_files=tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
    test_file="test_batch.bin",
    label_bytes=1,
    classes=tuple(_TEN.split()),
)
CIFAR100 = Cifar(
    name="cifar100",
    repository="uoft-cs/cifar100",
    revision="aadb3af77e9048adbea6b47c21a81e47dd092ae5",
    train_files=("train.bin",),
    test_file="test.bin",
    label_bytes=2,
    classes=tuple(_HUNDRED.split()),
)
