"""What all tests share."""

import os

# As the command line does, see zoo.cli.front; it counts only before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
