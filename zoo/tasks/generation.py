"""What tasks share whose network writes text: prompts become tokens, tokens become text."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar

from torch import Tensor

from zoo.errors import InputError
from zoo.tasks.base import Task
from zoo.tasks.decoding import generate, stream
from zoo.tasks.decoding.options import Decoding, check_decoding, temperature_of
from zoo.tasks.metrics import Inputs

UNFINISHED = "\ufffd"
"""Stands for bytes that make no letter yet."""

Location = Callable[[int], str]


class GenerativeTask(Task):
    """A task whose network generates text.

    Attributes:
        continues_prompt: Whether the text goes on from the prompt; otherwise it answers it.
        decoding: How tokens are chosen unless `generate` is told otherwise.
    """

    continues_prompt: ClassVar[bool] = True
    per_token = True
    decoding: Decoding = Decoding()

    @classmethod
    def data_options(cls, info: Any) -> dict[str, Any]:
        """Return the number of tokens."""
        return {"vocab_size": info.vocab_size}

    @classmethod
    def num_outputs(cls, info: Any) -> int:
        """Return the number of tokens."""
        return int(info.vocab_size)

    def metric_example(self) -> Inputs:
        """Return one text that is generated well and one that is not, with their references."""
        return ["a good text", "another"], ["a good text", "another text"], {}

    # --- what a subclass defines ---

    def prompt_tokens(self, prompts: Sequence[str], location: Location | None = None) -> dict[str, Any]:
        """Return the arguments ``prompts``, ``mask``, ``source`` and ``end`` of `zoo.tasks.decoding.generate` for some prompts.

        Args:
            prompts: At least one.
            location: Says for messages where prompt i stands.

        Raises:
            InputError: If a prompt cannot be read.
        """
        raise NotImplementedError(f"{type(self).__name__}.prompt_tokens: return the prompts as tokens")

    def default_prompt(self) -> str:
        """Return the prompt to begin with if none is given.

        Raises:
            InputError: If there must be one.
        """
        raise InputError("this model answers a text: give it one with --prompt")

    # --- generating ---

    def decoding_for(self, decoding: Decoding | None = None) -> Decoding:
        """Return checked options: those given, or else the task's own.

        Raises:
            InputError: If one is out of range, or two exclude each other.
        """
        decoding = self.decoding if decoding is None else decoding
        self.check_decoding(decoding)
        return decoding

    @classmethod
    def check_decoding(cls, decoding: Decoding) -> None:
        """Check options of decoding.

        Raises:
            InputError: If one is out of range, or two exclude each other.
        """
        check_decoding(decoding)
        temperature_of(decoding, not cls.continues_prompt)

    def generate(self, prompts: Sequence[str], decoding: Decoding | None = None, location: Location | None = None) -> list[str]:
        """Generate a text for each prompt, all at once; the prompt is not repeated.

        Args:
            prompts: Texts to go on from, or to answer.
            decoding: How to choose tokens; by default as `decoding` of the task.
            location: Says for messages where prompt i stands.

        Raises:
            InputError: If a prompt cannot be read, an option is wrong, or there is no room for the text.
        """
        decoding = self.decoding_for(decoding)
        if not prompts:
            return []
        tokens = generate(self.net, **self._on_device(self.prompt_tokens(prompts, location)), options=decoding)  # type: ignore[arg-type]
        return [self.tokenizer.decode(text) for text in tokens]

    def stream(self, prompt: str, decoding: Decoding | None = None) -> Iterator[str]:
        """Generate one text and return its pieces as they come; what is wrong is found before the first.

        Raises:
            InputError: See `generate`.
        """
        decoding = self.decoding_for(decoding)
        if decoding.beam > 1:  # nothing is certain before the last token is
            return iter(self.generate([prompt], decoding))
        return self._pieces(stream(self.net, **self._on_device(self.prompt_tokens([prompt])), options=decoding))  # type: ignore[arg-type]

    def check_samples(self, count: int, decoding: Decoding | None = None) -> None:
        """Check that several texts for one prompt would not all be the same.

        Raises:
            InputError: If several are wanted, and nothing is drawn.
        """
        decoding = self.decoding_for(decoding)
        if count > 1 and (decoding.beam > 1 or temperature_of(decoding, not self.continues_prompt) == 0):
            why = "a beam finds one text" if decoding.beam > 1 else "nothing is drawn at a temperature of 0"
            raise InputError(f"{count} samples: {why}, all would be the same; use --temperature 1, or one sample")

    def _pieces(self, tokens: Iterator[Tensor]) -> Iterator[str]:
        numbers: list[int] = []
        said = ""
        for token in tokens:
            numbers.append(int(token))
            text = self.tokenizer.decode(numbers)
            if not text.endswith(UNFINISHED):
                yield text[len(said) :]
                said = text
        yield self.tokenizer.decode(numbers)[len(said) :]

    def _on_device(self, tokens: dict[str, Any]) -> dict[str, Any]:
        return {name: value.to(self.device) if isinstance(value, Tensor) else value for name, value in tokens.items()}


def shortened(text: str, most: int = 40) -> str:
    """Show the beginning of a text in one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}..."


def as_decoding(value: Any) -> Decoding:
    """Return decoding options from a mapping, from None (the defaults) or as they are."""
    from zoo.registry import build_options as build

    return value if isinstance(value, Decoding) else build(Decoding, value or {})


def as_dict(value: Any) -> dict[str, Any]:
    """Return decoding options as plain values."""
    return asdict(as_decoding(value))


def limited(decoding: Decoding, net: Any, longest: int | None) -> Decoding:
    """Let answers be no longer than any text that the network has read, unless the user gives another length.

    Raises:
        InputError: If the network has no positions for the length that the user gives.
    """
    most = answer_length(decoding, net)
    return replace(decoding, length=longest if most is None else most) if decoding.length is None else decoding


def answer_length(decoding: Decoding, net: Any) -> int | None:
    """Return how many tokens an answer may have for which the network has positions; None if there is no limit.

    Raises:
        InputError: If the user wants longer ones.
    """
    most = getattr(net, "max_length", None)
    if most is None:
        return None
    if decoding.length is not None and decoding.length >= most:
        raise InputError(f"length={decoding.length}: this network has positions for answers of {most - 1} tokens")
    return int(most) - 1
