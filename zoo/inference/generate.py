"""Let a trained model write."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoo.checkpoint import load, read_config
from zoo.data.corpus import CorpusInfo
from zoo.data.parallel import ParallelInfo
from zoo.data.parallel.encoding import encode
from zoo.data.text.tokenizer import Tokenizer
from zoo.data.text.tokens import BEGIN, END, UNKNOWN
from zoo.errors import InputError
from zoo.inference.predict import tokenizer_of
from zoo.options import Decoding
from zoo.tasks.decoding import check_decoding, stream, write
from zoo.tasks.decoding.options import temperature_of
from zoo.tasks.making import info_of
from zoo.tasks.seq2seq import within

UNFINISHED = "\ufffd"
"""What stands for bytes that make no letter yet."""


class Author:
    """A trained model that writes, with its words.

    Args:
        run: A run or model folder.
        cut: Whether a text to answer that is longer than the model reads is cut instead of refused.

    Attributes:
        answers: Whether it writes a text in answer to another, and not on from it.

    Raises:
        InputError: If the folder is damaged, or its model does not write.
    """

    def __init__(self, run: str | Path, cut: bool = False) -> None:
        config = read_config(run)
        info = info_of(config["task"], config["info"])
        if not isinstance(info, CorpusInfo | ParallelInfo):
            raise InputError(f"'{run}' is a model of {config['task']} and writes no text: use zoo predict")
        self.answers = isinstance(info, ParallelInfo)
        self.net: Any = load(run, config)
        tokenizer = tokenizer_of(run, info, cut)
        # Running text has no longest: what a network has positions for is checked when it writes.
        self.tokenizer: Tokenizer = tokenizer if self.answers else tokenizer.limited(None)

    def opening(self, prompt: str | None) -> str:
        """Return what to begin with; a language model that is given nothing begins a new line, or a word if it knows no lines.

        Raises:
            InputError: If there is nothing to answer.
        """
        if prompt:
            return prompt
        if self.answers:
            raise InputError("this model answers a text: give it one with --prompt")
        texts = ("\n", " ", *self.tokenizer.tokens[UNKNOWN + 1 :])
        return next(text for text in texts if UNKNOWN not in self.tokenizer.encode([text])[0])

    def stream(self, prompt: str, options: Decoding) -> Iterator[str]:
        """Write one text, and return its pieces as they come; what is wrong is found before the first.

        Raises:
            InputError: See `samples`.
        """
        options = self._settled(options)
        if options.beam > 1:  # nothing is certain before the last word is
            return iter(self.samples(prompt, 1, options))
        return self._pieces(stream(self.net, **self._inputs([prompt]), options=options))

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

    def check_samples(self, count: int, options: Decoding) -> None:
        """Refuse to write one and the same text several times.

        Raises:
            InputError: If several are wanted, and nothing is drawn.
        """
        if count > 1 and (options.beam > 1 or temperature_of(options, self.answers) == 0):
            why = "a beam finds one text" if options.beam > 1 else "nothing is drawn at a temperature of 0"
            raise InputError(f"{count} samples: {why}, all would be the same; use --temperature 1, or one sample")

    def samples(self, prompt: str, count: int, options: Decoding) -> list[str]:
        """Write so many texts from one prompt, without the prompt.

        Raises:
            InputError: If the prompt has letters that the model does not know, is longer than it reads, an option is wrong, or
                there is no room for the text.
        """
        return self.write([prompt] * count, options)

    def write(self, prompts: Sequence[str], options: Decoding, place: Callable[[int], str] | None = None) -> list[str]:
        """Write a text for each prompt, all at once; see `samples`. ``place`` says for messages where prompt i stands."""
        inputs = self._inputs(prompts, place)
        return [self.tokenizer.decode(text) for text in write(self.net, **inputs, options=self._settled(options))]

    def _settled(self, options: Decoding) -> Decoding:
        check_decoding(options)
        return within(options, self.net, self.tokenizer.max_length) if self.answers else options

    def _inputs(self, prompts: Sequence[str], place: Callable[[int], str] | None = None) -> dict[str, Any]:
        """Make what `zoo.tasks.decoding` reads of prompts."""
        place = place or (lambda row: f"prompt '{shown(prompts[row])}'")
        if self.answers:
            source = encode(prompts, self.tokenizer, place).padded()
            return {"prompts": source.new_full((len(prompts), 1), BEGIN), "source": source, "end": END}
        tokens = self.tokenizer.encode(prompts, place)
        for prompt, numbers in zip(prompts, tokens, strict=True):
            if UNKNOWN in numbers:
                known = set(self.tokenizer.tokens)
                letters = self.tokenizer.backend.normalizer.normalize_str(prompt)
                strange = next((letter for letter in letters if letter not in known), "")
                raise InputError(f"prompt '{shown(prompt)}': the model has never seen {strange!r}; leave it out")
        width = int(tokens.lengths.max())
        rows = [torch.nn.functional.pad(torch.as_tensor(row, dtype=torch.int64), (width - len(row), 0)) for row in tokens]
        padded = torch.stack(rows)
        return {"prompts": padded, "mask": None if padded.all() else padded != 0, "end": None}


def shown(text: str, most: int = 40) -> str:
    """Show the beginning of a text in one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}..."
