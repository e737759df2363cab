"""Load a plugin in a process of its own, where even a crash does no harm."""

import json
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict

from zoo.registry.records import Entry

# The parent's path goes along, because plugins may stand on parts that were added at run time.
_CHILD = """
import json, os, sys
path, fields = json.loads(sys.argv[1])
sys.path[:] = path
from zoo.registry.loading import PluginError, load
from zoo.registry.records import Entry
try:
    load(Entry(**fields))
    print("\\nloaded", flush=True)
except PluginError as error:
    print(f"\\n{error}", flush=True)
os._exit(0)
"""


def probe(entry: Entry, timeout: float = 60.0) -> str | None:
    """Load an entry in a fresh process and return what went wrong, or None if nothing did.

    Args:
        entry: The plugin to try.
        timeout: Seconds after which the process is killed.
    """
    # A file, not a pipe: a grandchild that keeps a pipe open would make us wait for ever.
    with tempfile.TemporaryFile("w+") as report:
        command = [sys.executable, "-P", "-c", _CHILD, json.dumps([list(map(str, sys.path)), asdict(entry)])]
        try:
            code = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=report, stderr=subprocess.DEVNULL, timeout=timeout
            ).returncode
        except subprocess.TimeoutExpired:
            return f"{entry} does not load within {timeout:g} s"
        report.seek(0)
        said = report.read().splitlines()
    if code == 0 and said:
        return None if said[-1] == "loaded" else said[-1]
    end = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"{entry} ends the process that loads it ({end})"
