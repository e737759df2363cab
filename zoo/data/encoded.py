"""Images that stay encoded (files, or bytes in memory) until somebody looks at them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image, ImageOps

from zoo.errors import InputError

# Pillow's decoders fail with any of these, depending on the format and on what is wrong.
_DECODING = (OSError, SyntaxError, ValueError, EOFError, IndexError, Image.DecompressionBombError)


class EncodedImages:
    """A sequence of images that decodes an image when it is asked for it.

    Args:
        items: Per image a path, or the bytes of an image file.
        names: Per image what an error message or, for a path, the digest calls it: there its place below the root.
    """

    def __init__(self, items: Sequence[Path | bytes], names: Sequence[str]) -> None:
        self.items = items
        self.names = names

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Image.Image:
        """Decode one image, upright as its EXIF note says.

        Raises:
            InputError: The file is missing, cut off or no image; the message names it.
        """
        item = self.items[index]
        try:
            with Image.open(io.BytesIO(item) if isinstance(item, bytes) else item) as image:
                return ImageOps.exif_transpose(image)
        except _DECODING as error:
            name = self.names[index] if isinstance(item, bytes) else item
            raise InputError(f"{name}: not a readable image ({type(error).__name__}); replace or delete it") from error

    def take(self, index: Iterable[int]) -> EncodedImages:
        """Return the images at these places, still encoded."""
        places = [int(i) for i in index]
        return EncodedImages([self.items[i] for i in places], [self.names[i] for i in places])

    def content(self) -> Iterable[bytes]:
        """Yield what the digest covers: bytes in memory whole, files by name and size only (a folder may be huge)."""
        for item, name in zip(self.items, self.names, strict=True):
            yield item if isinstance(item, bytes) else f"{name}\0{item.stat().st_size}\0".encode()
