"""The published sets of labeled images.

Every preset reads the local copy `path`, or downloads the set from the Hugging Face Hub; see `cifar_set` and `medmnist`. All
other options are those of `ImageData`.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.images import ImageData, find_array, read_arrays, read_npz
from zoo.data.options import DataError, OptionalPath, resolve_path
from zoo.data.pixels import EncodedImages, Split, hold_out
from zoo.data.splits import stratified
from zoo.errors import InputError
from zoo.registry import check_option, passes_options_to
from zoo_datasets.hub import from_hub


def cifar_set(
    name: str,
    repository: str,
    revision: str,
    classes: Sequence[str],
    train_files: Sequence[str],
    test_file: str,
    label: str = "label",
    label_bytes: int = 1,
) -> Callable[..., ImageData]:
    """Return the preset of CIFAR-10 or CIFAR-100: `preset(path=None, limit=None, val=0.1, ...)`.

    `path` is a folder with the binary version, or with shards `train_*.npz` and `test.npz`; nothing is unpickled. Without, the
    set is downloaded from the Hub. `limit` is the maximum number of images of every split, `val` the share held out for
    validation.

    Args:
        name: Name of the preset.
        repository: The data set repository on the Hub.
        revision: The commit to read.
        classes: The label names; label i is called `classes[i]`.
        train_files: Training files of the binary version.
        test_file: Test file of the binary version.
        label: The column of labels on the Hub.
        label_bytes: Bytes per label in the binary version; the last one is the label.
    """

    def read(root: Path | None, limit: int | None, val: float) -> dict[str, Split]:
        if root is None:
            splits = _hub_images(name, repository, revision, label)
        elif train_file := next(root.rglob(train_files[0]), None):
            files = {"train": train_files, "test": [test_file]}
            splits = {split: _binary(name, train_file.parent, part, label_bytes) for split, part in files.items()}
        elif shards := sorted(root.glob("train_*.npz")):
            splits = {"train": _shards(shards), "test": _shards([root / "test.npz"])}
        else:
            accepted = f"the binary version ({train_files[0]} ...), or train_*.npz and test.npz"
            raise DataError(f"{name}: {root} has none of the known files; use a folder with {accepted}")
        splits = hold_out(splits, "val", val)
        for split, images in splits.items():
            if limit is not None and limit < len(images):
                splits[split] = images.take(np.flatnonzero(stratified(images.labels, limit)))
        return splits

    @passes_options_to(ImageData, "channels", "test", "use_all", size=32)
    def preset(path: OptionalPath = None, limit: int | None = None, val: float = 0.1, **options: Any) -> ImageData:
        limit = check_option("limit", int | None, limit, "[1, inf)")
        root = None if path is None else resolve_path(path, name)
        return ImageData(partial(read, root, limit, check_option("val", float, val, "(0, 1)")), classes, **options)

    preset.__name__ = preset.__qualname__ = name
    return preset


def _binary(name: str, folder: Path, files: Sequence[str], label_bytes: int) -> Split:
    """Read records of label bytes (the last one is the label) and 3 x 32 x 32 color planes."""
    length = label_bytes + 32 * 32 * 3
    parts = [np.fromfile(resolve_path(folder / file, name), np.uint8) for file in files]
    for file, part in zip(files, parts, strict=True):
        if not len(part) or len(part) % length:
            message = f"{folder / file}: {len(part)} bytes, expected a multiple of {length}; the file is damaged"
            raise InputError(message, code="corrupt")
    records = np.concatenate(parts).reshape(-1, length)
    pixels = records[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Split(np.ascontiguousarray(pixels), records[:, label_bytes - 1], str(folder))


def _shards(files: list[Path]) -> Split:
    """Read archives of concatenated image files: `jpeg` (bytes), `offsets` [N + 1] and `labels` [N]."""
    items: list[Path | bytes] = []
    names: list[str] = []
    labels = []
    for file in files:
        arrays = read_arrays(file)
        encoded, offsets, numbers = (find_array(file, arrays, name) for name in ("jpeg", "offsets", "labels"))
        content = encoded.tobytes()
        if len(offsets) != len(numbers) + 1 or offsets[-1] != len(content):
            raise InputError(f"{file}: offsets do not match jpeg and labels; the file is damaged", code="corrupt")
        items += [content[start:end] for start, end in pairwise(offsets.tolist())]
        names += [f"{file}, image {i}" for i in range(len(numbers))]
        labels.append(numbers)
    return Split(EncodedImages(items, names), np.concatenate(labels), str(files[0].parent))


def _hub_images(preset: str, repository: str, revision: str, label: str) -> dict[str, Split]:
    """Return the splits of the Hub, with encoded images."""
    splits = {}
    with from_hub(preset, repository):
        from datasets import Image, load_dataset

        loaded = load_dataset(repository, revision=revision)
        for name in ("train", "test"):
            items = [item["bytes"] for item in loaded[name].cast_column("img", Image(decode=False))["img"]]
            names = [f"{repository}, {name} row {i}" for i in range(len(items))]
            splits[name] = Split(EncodedImages(items, names), np.array(loaded[name][label]), repository)
    return splits


REPOSITORY = "albertvillanova/medmnist-v2"  # a mirror of the files on Zenodo, verified by their MD5 sums
REVISION = "0472595ab51916346dc4ad40f7b77551f2171403"


def medmnist(name: str, md5: str, classes: str) -> Callable[..., ImageData]:
    """Return the preset of a set of MedMNIST v2 (28 x 28 pixels), with the official splits: `preset(path=None, ...)`.

    `path` is a local `.npz` (also of 64, 128 or 224 pixels), or the folder of `NAME.npz`. Without, the archive is downloaded
    from a mirror on the Hub. The default augmentation is `shift`.

    Args:
        name: Name of the preset and of its file, as in `medmnist/info.py` 2.1.0.
        md5: MD5 sum of the archive, by which a download is verified.
        classes: The label names, separated by ` | `.
    """

    @passes_options_to(ImageData, "channels", "val", "test", "use_all", augment="shift")
    def preset(path: OptionalPath = None, **options: Any) -> ImageData:
        root = None if path is None else resolve_path(path, name)
        if root is not None and root.is_dir():
            root = resolve_path(root / f"{name}.npz", name)
        return ImageData(lambda: read_npz(root or download(name, md5)), classes.split(" | "), **options)

    preset.__name__ = preset.__qualname__ = name
    return preset


def download(name: str, expected: str) -> Path:
    """Download an archive to the cache of `huggingface_hub`, and verify its MD5 sum."""
    with from_hub(name, REPOSITORY):
        import huggingface_hub

        path = huggingface_hub.hf_hub_download(REPOSITORY, f"data/{name}.npz", repo_type="dataset", revision=REVISION)
    with open(path, "rb") as stream:
        md5 = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if md5 != expected:
        raise InputError(f"{name}: {path} is damaged (MD5 {md5}, expected {expected}); delete it and try again", code="corrupt")
    return Path(path)


ORGANS = (
    "bladder | femur-left | femur-right | heart | "
    "kidney-left | kidney-right | liver | lung-left | lung-right | pancreas | spleen"
)
CIFAR100_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""

cifar10 = cifar_set(
    name="cifar10",
    repository="uoft-cs/cifar10",
    revision="0b2714987fa478483af9968de7c934580d0bb9a2",
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    train_files=tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
    test_file="test_batch.bin",
)
"""CIFAR-10: 32 x 32 RGB photographs, 10 classes, 50,000 training and 10,000 test images (Krizhevsky 2009)."""

cifar100 = cifar_set(
    name="cifar100",
    repository="uoft-cs/cifar100",
    revision="aadb3af77e9048adbea6b47c21a81e47dd092ae5",
    classes=tuple(CIFAR100_CLASSES.split()),
    train_files=("train.bin",),
    test_file="test.bin",
    label="fine_label",
    label_bytes=2,
)
"""CIFAR-100: 32 x 32 RGB photographs, 100 classes (the fine labels) of 500 training and 100 test images (Krizhevsky 2009)."""

bloodmnist = medmnist(
    "bloodmnist",
    "7053d0359d879ad8a5505303e11de1dc",
    "basophil | eosinophil | erythroblast | immature granulocytes(myelocytes, metamyelocytes and promyelocytes) | "
    "lymphocyte | monocyte | neutrophil | platelet",
)
"""Blood cells under the microscope, 8 classes, RGB. MedMNIST v2 (Yang et al. 2023)."""

breastmnist = medmnist("breastmnist", "750601b1f35ba3300ea97c75c52ff8f6", "malignant | normal, benign")
"""Breast ultrasound, 2 classes, grey. MedMNIST v2 (Yang et al. 2023)."""

dermamnist = medmnist(
    "dermamnist",
    "0744692d530f8e62ec473284d019b0c7",
    "actinic keratoses and intraepithelial carcinoma | basal cell carcinoma | benign keratosis-like lesions | "
    "dermatofibroma | melanoma | melanocytic nevi | vascular lesions",
)
"""Skin lesions under the dermatoscope, 7 classes, RGB. MedMNIST v2 (Yang et al. 2023)."""

octmnist = medmnist(
    "octmnist", "c68d92d5b585d8d81f7112f81e2d0842", "choroidal neovascularization | diabetic macular edema | drusen | normal"
)
"""Retinal optical coherence tomography, 4 classes, grey. MedMNIST v2 (Yang et al. 2023)."""

organamnist = medmnist("organamnist", "866b832ed4eeba67bfb9edee1d5544e6", ORGANS)
"""Abdominal CT, axial slices, 11 organs, grey. MedMNIST v2 (Yang et al. 2023)."""

organcmnist = medmnist("organcmnist", "0afa5834fb105f7705a7d93372119a21", ORGANS)
"""Abdominal CT, coronal slices, 11 organs, grey. MedMNIST v2 (Yang et al. 2023)."""

organsmnist = medmnist("organsmnist", "e5c39f1af030238290b9557d9503af9d", ORGANS)
"""Abdominal CT, sagittal slices, 11 organs, grey. MedMNIST v2 (Yang et al. 2023)."""

pathmnist = medmnist(
    "pathmnist",
    "a8b06965200029087d5bd730944a56c1",
    "adipose | background | debris | lymphocytes | mucus | smooth muscle | normal colon mucosa | "
    "cancer-associated stroma | colorectal adenocarcinoma epithelium",
)
"""Colon tissue, 9 classes, RGB. MedMNIST v2 (Yang et al. 2023)."""

pneumoniamnist = medmnist("pneumoniamnist", "28209eda62fecd6e6a2d98b1501bb15f", "normal | pneumonia")
"""Chest X-rays, normal or pneumonia, grey. MedMNIST v2 (Yang et al. 2023)."""

retinamnist = medmnist("retinamnist", "bd4c0672f1bba3e3a89f0e4e876791e4", "0 | 1 | 2 | 3 | 4")
"""Fundus photographs, 5 grades of diabetic retinopathy, RGB. MedMNIST v2 (Yang et al. 2023)."""

tissuemnist = medmnist(
    "tissuemnist",
    "ebe78ee8b05294063de985d821c1c34b",
    "Collecting Duct, Connecting Tubule | Distal Convoluted Tubule | Glomerular endothelial cells | "
    "Interstitial endothelial cells | Leukocytes | Podocytes | Proximal Tubule Segments | Thick Ascending Limb",
)
"""Kidney cortex cells, 8 classes, grey. MedMNIST v2 (Yang et al. 2023)."""
