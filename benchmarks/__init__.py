"""Benchmark scripts and their results."""

import os

# The same as in zoo/__init__.py, for scripts that import torch first.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
