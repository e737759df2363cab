"""LightningModules: what is learned from the data, and how it is measured."""

from zoo.tasks.classification import Classification

__all__ = ["Classification"]
