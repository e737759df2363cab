"""Labelled texts and pairs of texts: tables, tokenizers, and the data module `TextData` that presets return."""

from zoo.data.info import TextInfo
from zoo.data.text.module import TextData
from zoo.data.text.table import Table
from zoo.data.text.tokenizer import Tokenizer

__all__ = ["Table", "TextData", "TextInfo", "Tokenizer"]
