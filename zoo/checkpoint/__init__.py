"""A trained model is a folder: specs, weights, a manifest with checksums, and a card; nothing in it is ever unpickled."""

from zoo.checkpoint.folder import find, load_network, read_config, save

__all__ = ["find", "load_network", "read_config", "save"]
