"""Checkpoints that people pull, check, run and share: sources, the cache, catalogues, releases. Nothing here imports torch."""
