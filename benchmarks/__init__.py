"""Benchmark scripts and their results."""

import os

# The same as on the command line, see zoo.cli.commands.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
