"""Compile ``fused.cpp`` on first use and load its operators; without a compiler the kernels in Python do the same work.

The library is cached in `zoo.registry.home`, by the source, torch's version and the instructions of the processor.
``ZOO_FUSED=0`` turns it off.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from zoo.errors import InputError
from zoo.registry.home import home

SOURCE = Path(__file__).with_name("fused.cpp")
SECONDS = 180
"""The longest time to wait for a compiler, or for another process that compiles."""
RETRY_SECONDS = 24 * 3600
"""After a failed build, nobody tries again for this long."""
INSTRUCTIONS = {
    "AVX2": ["-mavx2", "-mfma"],
    "AVX512": ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mavx2", "-mfma"],
}

_state: dict[str, str] = {}


class BuildError(Exception):
    """The library cannot be compiled or loaded here."""


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def is_available() -> bool:
    """Load the operators once per process, compiling them if necessary; return whether they are loaded."""
    if "loaded" not in _state and "reason" not in _state:
        try:
            _state["loaded"] = str(load_library())
        except (BuildError, OSError, InputError, Timeout, NotImplementedError) as error:
            _state["reason"] = str(error) or type(error).__name__
    return "loaded" in _state


def status() -> str:
    """Say in one line which kernel runs, without compiling anything."""
    if "reason" in _state:
        return f"Python kernels: {_state['reason']}"
    if os.environ.get("ZOO_FUSED") == "0":
        return "Python kernels: ZOO_FUSED=0"
    try:
        path = library()
        if (failed := path.with_suffix(".failed")).exists():
            return f"Python kernels: {failed.read_text(encoding='utf-8').strip()}"
        if path.exists():
            return f"fused, {path}"
        return "fused, to be compiled on first use" if compiler() else "Python kernels: no C++ compiler (c++, g++, clang++)"
    except (OSError, InputError) as error:
        return f"Python kernels: {error}"


def load_library() -> Path:
    """Load the compiled operators and return their file, compiled now if it does not exist.

    Raises:
        BuildError: If there is no compiler, the build fails or failed lately, or the file cannot be loaded.
        OSError: If the cache folder cannot be written.
    """
    if os.environ.get("ZOO_FUSED") == "0":
        raise BuildError("ZOO_FUSED=0")
    path = library()
    if not path.exists():
        failed = path.with_suffix(".failed")
        if failed.exists() and time.time() - failed.stat().st_mtime < RETRY_SECONDS:
            raise BuildError(failed.read_text(encoding="utf-8").strip())
        if compiler() is None:
            raise BuildError("no C++ compiler (c++, g++, clang++)")
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.parent / "build.lock", timeout=SECONDS):
            if not path.exists():
                compile_library(path)
    try:
        torch.ops.load_library(path)
    except OSError as error:
        path.unlink(missing_ok=True)  # another process compiles it again
        raise BuildError(f"{path} cannot be loaded ({error.__cause__ or error})") from None
    return path


def library() -> Path:
    """Return the file of the compiled operators for this torch and this processor; it may not exist yet."""
    parts = [SOURCE.read_bytes(), torch.__version__.encode(), " ".join(flags()).encode(), platform.machine().encode()]
    return home() / "fused" / f"{hashlib.sha256(b'|'.join(parts)).hexdigest()[:16]}.so"


def compiler() -> str | None:
    """Return the C++ compiler: that of the variable CXX, or the first of c++, g++ and clang++."""
    return next(
        (found for name in (os.environ.get("CXX"), "c++", "g++", "clang++") if name and (found := shutil.which(name))), None
    )


def flags() -> list[str]:
    """Return the compiler's flags; the instructions are those that torch itself uses here."""
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    vectors = INSTRUCTIONS.get(torch.backends.cpu.get_cpu_capability(), [])
    return ["-std=c++20", "-O3", "-fPIC", "-shared", "-fopenmp", "-w", abi, *vectors]


def compile_library(path: Path) -> None:
    """Compile the library to a temporary folder and move it to its path; the caller holds the lock of the folder.

    Raises:
        BuildError: If the compiler fails. It is not tried again for a day, unless it was killed.
    """
    for stale in path.parent.glob("build-*"):  # of processes that were killed: nobody else builds now
        shutil.rmtree(stale, ignore_errors=True)
    print("zoo: compiling the fused kernel, once; ZOO_FUSED=0 turns it off", file=sys.stderr, flush=True)  # noqa: T201 (its purpose)
    root = Path(torch.__file__).parent
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="build-", ignore_cleanup_errors=True) as folder:
        built = Path(folder) / path.name
        includes = [f"-I{root / 'include'}", f"-I{root / 'include/torch/csrc/api/include'}"]
        command = [
            str(compiler()),
            *flags(),
            *includes,
            str(SOURCE),
            "-o",
            str(built),
            f"-L{root / 'lib'}",
            "-ltorch_cpu",
            "-lc10",
        ]
        try:
            done = subprocess.run(
                command, env={**os.environ, "TMPDIR": folder}, capture_output=True, timeout=SECONDS, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            raise BuildError(f"{command[0]} took more than {SECONDS} s") from None
        if done.returncode:
            lines = done.stderr.decode(errors="replace").splitlines()
            reason = next((line for line in lines if "error" in line.lower()), f"exit status {done.returncode}")
            message = f"{command[0]} failed: {reason:.200}"
            if done.returncode > 0 and not any(word in reason for word in ("signal", "space")):
                path.with_suffix(".failed").write_text(message + "\n", encoding="utf-8")
            raise BuildError(message)
        with built.open("rb") as file:
            os.fsync(file.fileno())
        built.replace(path)
