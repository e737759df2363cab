"""Use a trained model: predict, generate, evaluate. Importing the package imports no torch: take names from its modules."""
