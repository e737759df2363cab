"""Untrusted model folders: no code runs, memory and time stay small, and one line reports the problem."""

import io
import pickle
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

import zoo
from tests.faults.hostile import KINDS, Payload, command, write_sound
from tests.faults.hostile_corpus import CORPUS, HARMLESS, write
from zoo.cli import main
from zoo.errors import InputError

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux to measure memory")
SECONDS = 60  # a machine may be busy; CPU time is limited to 5 s


class Ended(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def is_clear(self) -> bool:
        """Whether it is one line, without a traceback, and nothing that controls a terminal."""
        is_plain = all(character.isprintable() or character in "\n\t" for character in self.out + self.err)
        return is_plain and self.code == 2 and len(self.err.splitlines()) == 1 and "this is a bug" not in self.err


def peak() -> int:
    """Return the peak memory since `reset` in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def reset() -> int:
    """Reset the peak memory, and return the current memory."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


@contextmanager
def bounded() -> Iterator[None]:
    """Limit the address space and the time of this process, so that a defect ends in an error."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("it hangs")))
    resource.setrlimit(resource.RLIMIT_AS, (size + 2**31, before[1]))
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def run(*words: str) -> Ended:
    """Run a command in this process."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main([*words])
    return Ended(code, out.getvalue(), err.getvalue())


def load(kind: str, folder: Path, place: Path) -> Ended:
    """Load a model in Python."""
    try:
        zoo.load(folder)
    except InputError as error:
        return Ended(2, "", str(error))
    return Ended(0, "", "")


def serve(kind: str, folder: Path, place: Path) -> Ended:
    """Send a request to the server of a model."""
    pytest.importorskip("starlette")
    from starlette.testclient import TestClient
    from zoo_serving.application import application

    value = "abc" if kind in ("bytes", "letters") else command(kind, folder, place)[2]
    try:
        page = TestClient(application(zoo.load(folder), "a model"), raise_server_exceptions=False)
    except InputError as error:
        return Ended(2, "", str(error))
    if kind == "image":
        reply = page.post("/predict", files={"file": ("a.png", Path(value).read_bytes())})
    elif kind in ("bytes", "letters"):
        reply = page.post("/generate", json={"prompt": value})
    else:
        rows = [[1.0, 2.0, 1.0]] if kind in ("table", "number") else [value]
        reply = page.post("/predict", json={"inputs": rows})
    code = {200: 0, 400: 2}.get(reply.status_code, 1)
    return Ended(code, "", reply.json()["error"] if code else "")


COMMANDS: dict[str, Callable[[str, Path, Path], Ended]] = {
    "use": lambda kind, folder, place: run(*command(kind, folder, place)),
    "load": load,
    "serve": serve,
    "verify": lambda kind, folder, place: run("verify", str(folder)),
    "pull": lambda kind, folder, place: run("pull", f"file:{folder}"),
    "info": lambda kind, folder, place: run("info", str(folder)),
    "export": lambda kind, folder, place: run("export", str(folder), "--format", "safetensors", "--to", str(place / "x")),
    "publish": lambda kind, folder, place: run("publish", str(folder), "--to", str(place / "site"), "--name", "m"),
}
"""Every way to open a model folder; ``use`` is predict or generate."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("sound")
    for kind in KINDS:
        write_sound(place / kind, kind)
        for name in ("use", "serve"):  # imports at first use are not measured below
            ended = COMMANDS[name](kind, place / kind, place)
            assert (ended.code, ended.err) == (0, ""), ended
    return place


def attempt(name: str, way: str, sound: Path, place: Path) -> Ended:
    """Open a hostile folder in bounded time and memory, and return the result."""
    folder, marker = write(name, sound, place), place / "ran"
    size = sum(512 * path.lstat().st_blocks for path in folder.iterdir())
    with bounded():
        before, start = reset(), time.process_time()
        ended = COMMANDS[way](CORPUS[name].kind, folder, place)
        seconds, memory = time.process_time() - start, peak() - before
    assert not marker.exists()
    assert memory < 2 * size + 50 * 2**20, f"{memory / 2**20:.0f} MiB for {size / 2**20:.1f}"
    assert seconds < 5, "must be refused quickly"
    return ended


@pytest.mark.parametrize("name", CORPUS)
def test_a_hostile_folder_is_refused(sound, tmp_path, name):
    ended = attempt(name, "use", sound, tmp_path)
    if name in HARMLESS:
        assert (ended.code, ended.err) == (0, "")
        assert all(character.isprintable() or character in "\n\t" for character in ended.out)
    else:
        assert ended.is_clear, ended


OTHERS = [way for way in COMMANDS if way != "use"]
SAMPLE = [(name, OTHERS[number % len(OTHERS)]) for number, name in enumerate(CORPUS)]
REST = [(name, way) for name in CORPUS for way in OTHERS if (name, way) not in SAMPLE]


@pytest.mark.parametrize(("name", "way"), [*SAMPLE, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in REST)], ids=str)
def test_every_command_refuses_it_or_it_is_harmless(sound, tmp_path, name, way):
    ended = attempt(name, way, sound, tmp_path)
    is_finding = way == "verify" and ended.code == 1 and "damaged" in ended.out and not ended.err
    assert ended.is_clear or is_finding or (ended.code, ended.err) == (0, ""), ended


def test_the_payload_of_the_pickles_is_live(tmp_path):
    pickle.loads(pickle.dumps(Payload(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()
