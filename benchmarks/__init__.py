"""Scripts that measure, and the results they wrote."""

import os

# As the command line does, see zoo.cli.commands.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
