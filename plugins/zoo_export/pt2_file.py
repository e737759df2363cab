"""Write programs of `torch.export`, compressed."""

from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import torch
from torch import nn

from zoo.inference.model import Model
from zoo_export.tracing import check_equal, program, refusing


def write_program(model: Model, net: nn.Module, file: Path, output: str) -> dict[str, Any]:
    """Save a network as a `torch.export` program, load it and compare it with the model; the network is changed."""
    exported = program(model, net)
    with refusing(model):
        content = BytesIO()
        torch.export.save(exported, content)
    file.write_bytes(compressed(content))  # on a full disk torch's own writer ends the process
    with refusing(model):
        loaded = torch.export.load(file).module()
    return {"max_difference": check_equal(model, loaded)}


def compressed(archive: BytesIO) -> bytes:
    """Compress the archive of a program: torch stores its graph as text, which takes more bytes than the weights."""
    target = BytesIO()
    with ZipFile(archive) as source, ZipFile(target, "w", ZIP_DEFLATED) as small:
        for entry in source.infolist():
            small.writestr(entry.filename, source.read(entry))
    return target.getvalue()
