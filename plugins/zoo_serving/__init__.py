"""A web page and a JSON interface for a trained model: the command ``zoo serve``."""
