"""Experiments of many runs, each a grid of resumable points: sweeps, cross-validation and lottery tickets."""
