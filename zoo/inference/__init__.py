"""Use a trained model: predict, generate, evaluate."""

from zoo.inference.evaluate import evaluate
from zoo.inference.predict import predict

__all__ = ["evaluate", "predict"]
