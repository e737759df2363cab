"""Export trained models for other runtimes: the command ``zoo export``."""
