"""How a model reads: from text to token numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from zoo.data.text.tokenizer import SPECIAL, quiet, train_tokenizer
from zoo.data.text.tokens import END, PAD, UNKNOWN, Ints, Tokens
from zoo.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Reader", "train_tokenizer"]

CHUNK = 1000
"""Texts that are encoded at a time: the library's own records are a hundred times as large as the numbers we keep."""


class Known(Protocol):
    """What the info of every kind of text tell about its tokens."""

    @property
    def tokenizer(self) -> str:
        """Name of the file beside the model that turns text into tokens."""

    @property
    def vocab_size(self) -> int:
        """Tokens that it knows."""

    @property
    def max_length(self) -> int:
        """Tokens that the model reads at most."""


@dataclass(frozen=True, eq=False)
class Reader:
    """Turn texts into token numbers, as a model does before it computes.

    Attributes:
        tokenizer: The vocabulary and the rules that cut a text; 0 is padding, 1 an unknown token.
        max_length: Tokens at most.
        classes: The label names of the model.
        cut: Whether a longer text is cut to its first `max_length` tokens; otherwise it is an error.

    Example:
        >>> reader = Reader(train_tokenizer("word", ["A good film.", "a bad film"], 9, True, 1), 4, ("bad", "good"), cut=True)
        >>> reader.words
        ['[PAD]', '[UNK]', 'a', 'film', '.', 'bad', 'good']
        >>> reader.encode(["A film so good, ..."]).padded()
        tensor([[2, 3, 1, 6]])
    """

    tokenizer: Tokenizer
    max_length: int
    classes: tuple[str, ...]
    cut: bool = False

    @classmethod
    def of(cls, info: Known, text: str, cut: bool = False) -> Reader:
        """Rebuild the reader of a stored model.

        Args:
            info: What the model knows of its data.
            text: What its tokenizer file holds.
            cut: See `Reader`.

        Raises:
            InputError: The text is no tokenizer, or not one of that many tokens.
        """
        quiet()
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # The library raises Exception itself.
            reason = str(error).splitlines()[0][:120]
            raise InputError(f"{info.tokenizer}: this is not a file of the tokenizers library ({reason})") from error
        if (size := tokenizer.get_vocab_size()) != info.vocab_size:
            raise InputError(f"{info.tokenizer}: {size} tokens, the model has {info.vocab_size}; it is another model's file")
        return cls(tokenizer, info.max_length, getattr(info, "classes", ()), cut)

    @property
    def text(self) -> str:
        """What a tokenizer file holds."""
        return self.tokenizer.to_str()

    @property
    def vocab_size(self) -> int:
        """Tokens that there are, padding and unknown included."""
        return self.tokenizer.get_vocab_size()

    @property
    def words(self) -> list[str]:
        """All tokens in the order of their numbers."""
        vocabulary = self.tokenizer.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)

    @property
    def writes(self) -> bool:
        """Whether its vocabulary has the tokens that a written text begins and ends with."""
        return self.tokenizer.token_to_id(SPECIAL[END]) == END

    def decode(self, numbers: Sequence[int] | Ints) -> str:
        """Turn token numbers into text again, up to the token that ends it.

        Example:
            >>> reader = Reader(train_tokenizer("char", ["no on"], 9, True, 1, ends=True), 9, ())
            >>> reader.decode([2, *reader.encode(["on no"])[0], 3, 4, 0])
            'on no'
        """
        text = [int(number) for number in numbers]
        if self.writes:
            text = text[: text.index(END)] if END in text else text
            text = [number for number in text if number > END]
        decoded: str = self.tokenizer.decode([number for number in text if number != PAD])
        # Pairs of bytes cut the first word of a text like all others: with the space before it.
        return decoded.removeprefix(" ") if getattr(self.tokenizer.pre_tokenizer, "add_prefix_space", False) else decoded

    def encode(self, texts: Sequence[str], place: Callable[[int], str] = "text {}".format) -> Tokens:
        """Turn every text into token numbers.

        Args:
            texts: Any number of texts.
            place: Says where text i stands, for messages.

        Raises:
            InputError: A text has no tokens, or more than the model reads and is not to be cut; the message names the place.
        """
        quiet()
        found: list[Ints] = []
        for start in range(0, len(texts), CHUNK):
            for encoding in self.tokenizer.encode_batch_fast(list(texts[start : start + CHUNK]), add_special_tokens=False):
                found.append(self._checked(np.asarray(encoding.ids, dtype=np.int32), place, len(found)))
        return Tokens(found)

    def _checked(self, numbers: Ints, place: Callable[[int], str], row: int) -> Ints:
        if len(numbers) == 0:
            raise InputError(f"{place(row)}: no words in this text; leave the row out or write something")
        if len(numbers) > self.max_length and not self.cut:
            limit = f"the model reads at most {self.max_length}"
            advice = "shorten the text, or let it be cut (max_length in the data, zoo predict --truncate)"
            raise InputError(f"{place(row)}: {len(numbers)} tokens, {limit}; {advice}")
        numbers = numbers[: self.max_length]
        return np.where(numbers == PAD, np.int32(UNKNOWN), numbers)  # "[PAD]" written in a text is a word nobody knows
