"""Text data: tables of labelled texts or pairs, tokenizers, and Lightning data modules that know no networks.

A preset is a plain function that returns a `TextData`; users name it in a spec string, for instance `text(path=reviews.tsv)`.
What a model must know of its data is in `TextInfo`; its `Tokenizer` turns texts into token numbers.
"""

from zoo.data.info import TextInfo
from zoo.data.text.module import TextData, text_options
from zoo.data.text.table import Table
from zoo.data.text.tokenizer import Tokenizer

__all__ = ["Table", "TextData", "TextInfo", "Tokenizer", "text_options"]
