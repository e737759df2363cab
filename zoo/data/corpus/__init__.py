"""Running text for language models: sources of any size, tokens in memory or in mapped files, blocks and streams of them.

A preset is a plain function that returns a `CorpusData`; users name it in a spec string, for instance `corpus(path=book.txt)`.
What a model must know of its data is in `CorpusInfo`.
"""

from zoo.data.corpus.module import CorpusData
from zoo.data.corpus.source import Source, Text, TextFile
from zoo.data.info import CorpusInfo

__all__ = ["CorpusData", "CorpusInfo", "Source", "Text", "TextFile"]
