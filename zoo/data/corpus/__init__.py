"""Running text for language models: sources of any size, their tokens, and blocks and streams of them."""

from zoo.data.corpus.module import CorpusData
from zoo.data.corpus.source import Source, Text, TextFile
from zoo.data.info import CorpusInfo

__all__ = ["CorpusData", "CorpusInfo", "Source", "Text", "TextFile"]
