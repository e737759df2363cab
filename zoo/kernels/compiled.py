"""Compile ``fused.cpp`` when the plan first chooses it, and load its operators; without a compiler the Python kernels are used.

The library is cached in `zoo.atomic.home` by source, torch version and instruction set. ``ZOO_FUSED=0`` disables it.
"""

import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from filelock import FileLock

from zoo.atomic import home
from zoo.errors import InputError

SOURCE = Path(__file__).with_name("fused.cpp")
SECONDS = 180  # timeout of the compiler, and of waiting for another process that compiles
INSTRUCTIONS = {
    "AVX2": ["-mavx2", "-mfma"],
    "AVX512": ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mavx2", "-mfma"],
}

_state: dict[str, str] = {}


class BuildError(Exception):
    """Raised when the library cannot be compiled or loaded."""


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def is_available() -> bool:
    """Load the operators once per process, compiling them if necessary, and return whether it succeeded."""
    if not _state:
        try:
            _state["loaded"] = str(load_library())
        except (BuildError, OSError, InputError, NotImplementedError, subprocess.TimeoutExpired) as error:
            _state["reason"] = str(error) or type(error).__name__
    return "loaded" in _state


def is_expected() -> bool:
    """Return whether the operators are loaded or can presumably be compiled, without compiling them."""
    if not _state:
        try:
            reason = _obstacle()
        except (OSError, InputError) as error:
            reason = str(error)
        if reason:
            _state["reason"] = reason
    return "reason" not in _state


def status() -> str:
    """Describe in one line which kernels run, without compiling."""
    try:
        reason = _state.get("reason") or _obstacle()
        path = library()
    except (OSError, InputError) as error:
        reason = str(error)
    if reason:
        return f"Python kernels: {reason}"
    return f"fused, {path}" if path.exists() else "fused, to be compiled on first use"


def load_library() -> Path:
    """Load the operators and return the library's path, compiling it if it does not exist; raise `BuildError` or `OSError`."""
    if reason := _obstacle():
        raise BuildError(reason)
    path = library()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.parent / "build.lock", timeout=SECONDS):
            if not path.exists():
                compile_library(path)
    try:
        torch.ops.load_library(path)
    except OSError as error:
        path.unlink(missing_ok=True)  # the next process compiles it again
        raise BuildError(f"{path} cannot be loaded ({error.__cause__ or error})") from None
    return path


def library() -> Path:
    """Return the path of the library for this torch and processor; it may not exist yet."""
    parts = [SOURCE.read_bytes(), torch.__version__.encode(), " ".join(flags()).encode(), platform.machine().encode()]
    return home() / "fused" / f"{hashlib.sha256(b'|'.join(parts)).hexdigest()[:16]}.so"


def compiler() -> str | None:
    """Return the path of the C++ compiler: the variable CXX, or the first of c++, g++ and clang++."""
    return next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "c++", "g++", "clang++"))), None)


def flags() -> list[str]:
    """Return the compiler flags, with the instruction set that torch uses on this processor."""
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    vectors = INSTRUCTIONS.get(torch.backends.cpu.get_cpu_capability(), [])
    return ["-std=c++20", "-O3", "-fPIC", "-shared", "-fopenmp", "-w", abi, *vectors]


def compile_library(path: Path) -> None:
    """Compile the library in a temporary folder and move it to its path; the caller must hold the lock of the folder."""
    print("zoo: compiling the fused kernel, once; ZOO_FUSED=0 turns it off", file=sys.stderr, flush=True)  # noqa: T201 (its purpose)
    root = Path(torch.__file__).parent
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="build-", ignore_cleanup_errors=True) as folder:
        built = Path(folder) / path.name
        includes = [f"-I{root / 'include'}", f"-I{root / 'include/torch/csrc/api/include'}"]
        libraries = [f"-L{root / 'lib'}", "-ltorch_cpu", "-lc10"]
        command = [str(compiler()), *flags(), *includes, str(SOURCE), "-o", str(built), *libraries]
        status, errors = _run(command)
        if status:
            reason = next((line for line in errors.splitlines() if "error" in line.lower()), f"exit status {status}")
            raise BuildError(f"{command[0]} failed: {reason:.200}")
        built.replace(path)


def _run(command: list[str]) -> tuple[int, str]:
    """Run a compiler, and return its exit status and errors; stop it with all its processes after `SECONDS` and at Ctrl-C."""
    null = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=null, stdout=null, stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            errors = process.communicate(timeout=SECONDS)[1]
        except BaseException:
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            raise
        return process.returncode, errors.decode(errors="replace")


def _obstacle() -> str | None:
    """Return why the library cannot be used, or None; a library that is compiled already needs no compiler."""
    if os.environ.get("ZOO_FUSED") == "0":
        return "ZOO_FUSED=0"
    return None if library().exists() or compiler() else "no C++ compiler (c++, g++, clang++)"
