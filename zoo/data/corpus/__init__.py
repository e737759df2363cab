"""Running text for language models: its tokens, and blocks and streams of them."""

from zoo.data.corpus.module import CorpusData
from zoo.data.corpus.source import Text
from zoo.data.info import CorpusInfo

__all__ = ["CorpusData", "CorpusInfo", "Text"]
