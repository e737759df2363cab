"""Tasks whose network generates text: prompts become tokens, tokens become text."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from torch import Tensor

from zoo.errors import InputError
from zoo.tasks.base import Task
from zoo.tasks.decoding import Decoding, Prompts, check_decoding, check_length_penalty, generate, stream
from zoo.tasks.decoding.options import temperature_of

UNFINISHED = "\ufffd"
"""Stands for bytes that make no letter yet."""

Location = Callable[[int], str]


class GenerativeTask(Task):
    """A task whose network generates text.

    Attributes:
        continues_prompt: Whether the text goes on from the prompt; otherwise it answers it.
        decoding: How tokens are chosen.
    """

    continues_prompt: ClassVar[bool] = True
    per_token = True
    decoding: Decoding = Decoding()

    @classmethod
    def data_options(cls, info: Any) -> dict[str, Any]:
        """Return the number of tokens."""
        return {"vocab_size": info.vocab_size}

    # --- what a subclass defines ---

    def encode_prompts(self, texts: Sequence[str], location: Location | None = None) -> Prompts:
        """Return at least one prompt as tokens; ``location`` says for messages where prompt i stands.

        Raises:
            InputError: If a prompt cannot be read.
        """
        raise NotImplementedError(f"{type(self).__name__}.encode_prompts: return the prompts as tokens")

    def default_prompt(self) -> str:
        """Return the prompt to begin with if none is given.

        Raises:
            InputError: If there must be one.
        """
        raise InputError("this model answers a text: give it one with --prompt")

    def limited_decoding(self) -> Decoding:
        """Return `decoding` with a length that suits the network; refuse one that does not."""
        return self.decoding

    # --- generating ---

    @classmethod
    def check_decoding(cls, decoding: Decoding) -> None:
        """Check that no option of decoding is out of range, and that no two exclude each other."""
        check_decoding(decoding)
        check_length_penalty(decoding)
        temperature_of(decoding, not cls.continues_prompt)

    def generate(self, texts: Sequence[str]) -> list[str]:
        """Generate a text for each prompt, all at once; the prompt is not repeated.

        Raises:
            InputError: If a prompt cannot be read, an option is wrong, or there is no room for the text.
        """
        decoding = self.limited_decoding()
        if not texts:
            return []
        tokens = generate(self.net, self.encode_prompts(texts).to(self.device), decoding)  # type: ignore[arg-type]
        return [self.tokenizer.decode(text) for text in tokens]

    def stream(self, text: str) -> Iterator[str]:
        """Generate one text and return its pieces as they come; what is wrong is found before the first.

        Raises:
            InputError: See `generate`.
        """
        decoding = self.limited_decoding()
        if decoding.beam > 1:  # nothing is certain before the last token is
            return iter(self.generate([text]))
        prompts = self.encode_prompts([text]).to(self.device)
        return self._pieces(stream(self.net, prompts, decoding))  # type: ignore[arg-type]

    def check_samples(self, count: int) -> None:
        """Check that several texts for one prompt would not all be the same."""
        if count < 1:
            raise InputError(f"num_samples={count}: use a whole number from 1")
        drawn = self.decoding.beam == 1 and temperature_of(self.decoding, not self.continues_prompt) > 0
        if count > 1 and not drawn:
            beam = self.decoding.beam > 1
            why = "a beam finds one text" if beam else "nothing is drawn at a temperature of 0"
            advice = "leave --beam out" if beam else "use --temperature 1"
            raise InputError(f"{count} samples: {why}, all would be the same; {advice}, or one sample")

    def _pieces(self, tokens: Iterator[Tensor]) -> Iterator[str]:
        # A token is decoded with those of the piece before it, not with the whole text: what it looks like may depend on them.
        numbers: list[int] = []
        before = end = 0
        for token in tokens:
            numbers.append(int(token))
            piece = self._after(numbers[before:], end - before)
            if not piece.endswith(UNFINISHED):
                yield piece
                before, end = end, len(numbers)
        yield self._after(numbers[before:], end - before)

    def _after(self, numbers: list[int], known: int) -> str:
        """Return what the tokens behind the first ``known`` add to their text."""
        text: str = self.tokenizer.decode(numbers)
        return text[len(self.tokenizer.decode(numbers[:known])) :]


def prompt_location(texts: Sequence[str], most: int = 40) -> Location:
    """Name a prompt in messages by the beginning of its text, in one line."""
    lines = (" ".join(text.split()) for text in texts)
    shown = [line if len(line) <= most else f"{line[:most]}..." for line in lines]
    return lambda row: f"prompt '{shown[row]}'"
