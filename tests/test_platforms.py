"""The package can be imported without the modules and functions of Unix, as on Windows."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPT = """
import os, sys
for name in ("fcntl", "resource", "termios", "grp", "pwd", "syslog"):
    sys.modules[name] = None
for name in ("sched_getaffinity", "register_at_fork", "fork", "setsid", "getpgid", "killpg"):
    if hasattr(os, name):
        delattr(os, name)
import importlib, pkgutil
import zoo
from zoo.errors import InputError
failed = []
for package in sys.argv[1:]:
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, package + "."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            if error.name not in ("starlette", "uvicorn", "triton", "triton.language", "ray", "onnx", "pytest"):
                failed.append(f"{module.name}: {error}")
        except InputError as error:
            if error.code != "dependency":
                raise
        except AttributeError as error:
            failed.append(f"{module.name}: {error}")
print("\\n".join(failed))
"""


def test_import_without_unix_modules():
    packages = ["zoo", *sorted(path.parent.name for path in (ROOT / "plugins").glob("zoo_*/__init__.py"))]
    # Import third-party packages first, because they may need these modules.
    script = "import torch, lightning.pytorch, datasets, filelock, huggingface_hub, matplotlib, timm\n"
    script += "".join(f"import {name}\n" for name in ("transformers", "peft") if find_spec(name)) + SCRIPT
    done = subprocess.run([sys.executable, "-c", script, *packages], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.strip() == ""
