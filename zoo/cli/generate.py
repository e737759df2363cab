"""``zoo generate``: let a trained model write on from a prompt, or answer it."""

import json
import sys

from zoo.cli.decoding import add_decoding, decoding_of
from zoo.cli.plain_parser import plain_parser
from zoo.errors import InputError


def run(command: str, argv: list[str]) -> int:
    """Write to the terminal, word by word; several samples one after the other."""
    parser = plain_parser(command, "Let a trained model write: on from a prompt, or in answer to it.")
    parser.add_argument("run", help="a run (runs/NAME) or model folder")
    parser.add_argument("--prompt", default=None, help="what to write on from, or to answer; - reads standard input")
    parser.add_argument("--samples", type=int, default=1, help="texts to write (default 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object per text")
    add_decoding(parser)
    options = parser.parse_args(argv)
    if options.samples < 1:
        raise InputError(f"--samples {options.samples}: use a whole number from 1")
    prompt = prompt_of(options.prompt)
    from zoo.inference.generate import Author

    author, decoding = Author(options.run), decoding_of(options)
    author.check_samples(options.samples, decoding)
    start = author.opening(prompt)
    if options.samples == 1 and not options.json:
        pieces = author.stream(start, decoding)
        print("" if author.answers else start, end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
        print()
        return 0
    for number, text in enumerate(author.samples(start, options.samples, decoding), 1):
        if options.json:
            print(json.dumps({"prompt": start, "text": text}, ensure_ascii=False))
        else:
            print(f"{'' if number == 1 else chr(10)}--- {number}\n{'' if author.answers else start}{text}", flush=True)
    return 0


def prompt_of(word: str | None) -> str | None:
    """Return what was given as a prompt, or stands in standard input.

    Raises:
        InputError: If it is not UTF-8.
    """
    if word == "-":
        word = sys.stdin.buffer.read().decode("utf-8", "surrogateescape").removeprefix("\ufeff").removesuffix("\n")
    if word and any("\udc80" <= letter <= "\udcff" for letter in word):
        raise InputError("--prompt: bytes that are not UTF-8; give the text as UTF-8")
    return word
