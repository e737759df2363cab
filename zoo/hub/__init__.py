"""Pull and publish models: sources, downloads, the cache, catalogues and releases. Nothing here imports torch."""
