"""Let a trained model write."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from zoo.checkpoint import load, read_config
from zoo.errors import InputError
from zoo.inference.predict import tokenizer_of
from zoo.tasks import GenerativeTask, info_of, make_task
from zoo.tasks.decoding.options import Decoding
from zoo.tasks.generation import UNFINISHED

__all__ = ["UNFINISHED", "Author"]


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
        info: Any = info_of(config["task"], config["info"])
        tokenizer = tokenizer_of(run, info, cut) if hasattr(info, "tokenizer") else None
        task = make_task(config["task"], load(run, config), info, tokenizer)
        if not isinstance(task, GenerativeTask):
            raise InputError(f"'{run}' is a model of {config['task']} and writes no text: use zoo predict")
        self.task, self.tokenizer, self.answers = task.eval(), tokenizer, not task.continues_prompt
        self.net: Any = task.net

    def opening(self, prompt: str | None) -> str:
        """Return what to begin with; a language model that is given nothing begins a new line, or a word if it knows no lines.

        Raises:
            InputError: If there is nothing to answer.
        """
        return prompt or self.task.default_prompt()

    def stream(self, prompt: str, options: Decoding) -> Iterator[str]:
        """Write one text, and return its pieces as they come; what is wrong is found before the first."""
        return self.task.stream(prompt, options)

    def check_samples(self, count: int, options: Decoding) -> None:
        """Refuse to write one and the same text several times."""
        self.task.check_samples(count, options)

    def samples(self, prompt: str, count: int, options: Decoding) -> list[str]:
        """Write so many texts from one prompt, without the prompt."""
        return self.write([prompt] * count, options)

    def write(self, prompts: Sequence[str], options: Decoding, place: Callable[[int], str] | None = None) -> list[str]:
        """Write a text for each prompt, all at once; see `samples`. ``place`` says for messages where prompt i stands."""
        return self.task.generate(prompts, options, place)
