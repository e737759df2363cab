"""The base class of tasks whose network generates text."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from torch import Tensor

from zoo.errors import InputError
from zoo.tasks.base import Task
from zoo.tasks.decoding import Decoding, Prompts, check_decoding, generate, stream
from zoo.tasks.options import temperature_of

UNFINISHED = "\ufffd"
"""Replacement character, to which tokenizers decode an incomplete UTF-8 sequence."""

Location = Callable[[int], str]


class GenerativeTask(Task):
    """A task whose network generates text.

    Attributes:
        continues_prompt: Whether the text continues the prompt, as in a language model, or answers it.
        decoding: The decoding options.
    """

    continues_prompt: ClassVar[bool] = True
    per_token = True
    decoding: Decoding = Decoding()

    @classmethod
    def data_options(cls, info: Any) -> dict[str, Any]:
        """Return the size of the vocabulary."""
        return {"vocab_size": info.vocab_size}

    # --- methods for subclasses ---

    def encode_prompts(self, texts: Sequence[str], location: Location | None = None) -> Prompts:
        """Tokenize one or more prompts; error messages name prompt i by ``location(i)``.

        Raises:
            InputError: If a prompt cannot be tokenized.
        """
        raise NotImplementedError(f"{type(self).__name__}.encode_prompts: return the prompts as tokens")

    def default_prompt(self) -> str:
        """Return the prompt to use if the user gives none.

        Raises:
            InputError: If a prompt is required.
        """
        raise InputError("missing --prompt: this model answers a text")

    def limited_decoding(self) -> Decoding:
        """Return `decoding` with its length limited to what the network supports."""
        return self.decoding

    # --- generation ---

    @classmethod
    def check_decoding(cls, decoding: Decoding) -> None:
        """Check the ranges of the decoding options, and that they do not exclude each other."""
        check_decoding(decoding)
        if decoding.beam == 1 and decoding.length_penalty != Decoding.length_penalty:
            text = f"length_penalty={decoding.length_penalty} requires beam search: use --beam 4, or leave it out"
            raise InputError(text, code="conflict")
        temperature_of(decoding, not cls.continues_prompt)

    def generate(self, texts: Sequence[str]) -> list[str]:
        """Generate a text for each prompt in one batch, without the prompt.

        Raises:
            InputError: If a prompt cannot be tokenized, an option is invalid, or the text exceeds the maximum length.
        """
        decoding = self.limited_decoding()
        if not texts:
            return []
        tokens = generate(self.net, self.encode_prompts(texts).to(self.device), decoding)  # type: ignore[arg-type]
        return [self.tokenizer.decode(text) for text in tokens]

    def stream(self, text: str) -> Iterator[str]:
        """Generate one text and yield it in pieces; errors are raised before the first one.

        Raises:
            InputError: See `generate`.
        """
        decoding = self.limited_decoding()
        if decoding.beam > 1:  # the best text is only known at the end
            return iter(self.generate([text]))
        prompts = self.encode_prompts([text]).to(self.device)
        return self._pieces(stream(self.net, prompts, decoding))  # type: ignore[arg-type]

    def _pieces(self, tokens: Iterator[Tensor]) -> Iterator[str]:
        # The text of a token may depend on the token before it, so decode it together with the previous piece.
        ids: list[int] = []
        previous = start = 0
        for token in tokens:
            ids.append(int(token))
            piece = self._decode_after(ids[previous:], start - previous)
            if not piece.endswith(UNFINISHED):
                yield piece
                previous, start = start, len(ids)
        yield self._decode_after(ids[previous:], start - previous)

    def _decode_after(self, ids: list[int], skip: int) -> str:
        """Decode tokens and return the text after that of the first ``skip`` tokens."""
        text: str = self.tokenizer.decode(ids)
        return text[len(self.tokenizer.decode(ids[:skip])) :]


def prompt_location(texts: Sequence[str], width: int = 40) -> Location:
    """Return a function that names a prompt in error messages by the beginning of its text."""
    lines = (" ".join(text.split()) for text in texts)
    shown = [line if len(line) <= width else f"{line[:width]}..." for line in lines]
    return lambda row: f"prompt '{shown[row]}'"
