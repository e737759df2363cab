"""A run: a folder, a training, a summary. Importing the package imports no torch: take names from its modules."""
