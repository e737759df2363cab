"""The single-label 2D sets of MedMNIST v2 (Yang et al. 2023), 28 x 28 pixels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from zoo.data.images import ImageData
from zoo.data.medmnist_info import CLASSES, MD5
from zoo.data.npz import read_npz
from zoo.data.sources import existing, from_hub
from zoo.data.splits import Split
from zoo.errors import InputError

# A mirror, not MedMNIST's own: that is on Zenodo. The files are held against MedMNIST's own MD5 sums.
REPOSITORY = "albertvillanova/medmnist-v2"
REVISION = "0472595ab51916346dc4ad40f7b77551f2171403"


def medmnist(
    name: str,
    path: str | Path | None = None,
    size: int | None = None,
    batch_size: int = 64,
    num_workers: int = 0,
    augment: str = "auto",
    seed: int = 0,
) -> ImageData:
    """Load a MedMNIST set with its official splits and label names.

    Args:
        name: For instance `bloodmnist`; there is a function of each name in this module.
        path: A local `.npz` (also of 64, 128 or 224 pixels), or the folder that holds `<name>.npz`. None fetches it
            (once) from a mirror on the Hub and verifies MedMNIST's own MD5 sum.
        size: Side in pixels to scale to; that of the file if not given.
        batch_size: Images per batch.
        num_workers: Worker processes.
        augment: `auto` is a shift by up to a sixteenth of the side.
        seed: Of shuffling and augmentation.

    Raises:
        InputError: There is no such set, the file is wrong, or the Hub cannot be reached.
    """
    if name not in CLASSES:
        raise InputError(f"medmnist: no single-label set {name!r}; there are {', '.join(sorted(CLASSES))}")
    place = None if path is None else existing(path, name)
    if place is not None and place.is_dir():
        place = existing(place / f"{name}.npz", name)
    return ImageData(
        partial(_splits, name, place),
        CLASSES[name],
        size=size,
        batch_size=batch_size,
        num_workers=num_workers,
        augment="shift" if augment == "auto" else augment,
        seed=seed,
    )


def _splits(name: str, place: Path | None) -> dict[str, Split]:
    return read_npz(_fetch(name) if place is None else place)


def _fetch(name: str) -> Path:
    with from_hub(name, REPOSITORY):
        import huggingface_hub

        file = Path(huggingface_hub.hf_hub_download(REPOSITORY, f"data/{name}.npz", repo_type="dataset", revision=REVISION))
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != MD5[name]:
        raise InputError(f"{name}: {file} is damaged (MD5 {found}, MedMNIST says {MD5[name]}); delete it and try again")
    return file


def _preset(name: str) -> Callable[..., ImageData]:
    """Return the preset of one set: `medmnist` with its name filled in, and the rest of its signature to show to users."""

    def preset(*args: Any, **options: Any) -> ImageData:
        return medmnist(name, *args, **options)

    whole = signature(medmnist)
    shown = [parameter for key, parameter in whole.parameters.items() if key != "name"]
    preset.__signature__ = whole.replace(parameters=shown)  # type: ignore[attr-defined]
    preset.__annotations__ = {key: value for key, value in medmnist.__annotations__.items() if key != "name"}
    preset.__name__ = preset.__qualname__ = name
    preset.__doc__ = f"Load {name} of MedMNIST v2 ({len(CLASSES[name])} classes); see `medmnist`."
    return preset


bloodmnist = _preset("bloodmnist")
"""Blood cells under the microscope, 8 classes, RGB. MedMNIST v2."""
breastmnist = _preset("breastmnist")
"""Breast ultrasound, 2 classes, grey. MedMNIST v2."""
dermamnist = _preset("dermamnist")
"""Skin lesions under the dermatoscope, 7 classes, RGB. MedMNIST v2."""
octmnist = _preset("octmnist")
"""Retinal optical coherence tomography, 4 classes, grey. MedMNIST v2."""
organamnist = _preset("organamnist")
"""Abdominal CT, axial slices, 11 organs, grey. MedMNIST v2."""
organcmnist = _preset("organcmnist")
"""Abdominal CT, coronal slices, 11 organs, grey. MedMNIST v2."""
organsmnist = _preset("organsmnist")
"""Abdominal CT, sagittal slices, 11 organs, grey. MedMNIST v2."""
pathmnist = _preset("pathmnist")
"""Colon tissue, 9 classes, RGB. MedMNIST v2."""
pneumoniamnist = _preset("pneumoniamnist")
"""Chest X-rays, normal or pneumonia, grey. MedMNIST v2."""
retinamnist = _preset("retinamnist")
"""Fundus photographs, 5 grades of diabetic retinopathy, RGB. MedMNIST v2."""
tissuemnist = _preset("tissuemnist")
"""Kidney cortex cells, 8 classes, grey. MedMNIST v2."""
