"""Predict, generate and evaluate with a trained model. This package imports no torch: import from its modules."""
