"""A broken plugin affects no other plugin, and the error names it."""

import pickle
import sys

import pytest

from tests.errors import raises
from zoo.registry import PluginError, create, entries, faults, load, probe, refresh, resolve

GOOD_LINE = "[zoo.algebras]\nbroken = broken_module:build\n"

UNREADABLE = {
    "line without =": (GOOD_LINE + "no equals sign\n").encode(),
    "line without = in a foreign group": b"[console_scripts]\nno equals sign\n",
    "not UTF-8": GOOD_LINE.encode() + "[caf\xe9]\na = b:c\n".encode("latin-1"),
    "invalid name": b"[zoo.algebras]\ntwo words = broken_module:build\n",
    "same name twice": (GOOD_LINE + "broken = elsewhere:build\n").encode(),
}
HARMLESS = {
    "garbage": bytes(range(1, 128)) + b"\x00[[]\n",
    "no section header": b"broken = broken_module:build\n",
    "empty file": b"",
}
UNLOADABLE = {
    "empty value": ("", "", "'' is not module:attribute"),
    "no attribute": ("broken_module", "", "'broken_module' is not module:attribute"),
    "bad reference": ("broken module::x", "", "'broken module::x' is not module:attribute"),
    "no module": ("broken_elsewhere:build", "", "ModuleNotFoundError: No module named 'broken_elsewhere'"),
    "ImportError": ("broken_module:build", "import nothing_of_this_name", "ModuleNotFoundError: No module named"),
    "SyntaxError": ("broken_module:build", "def build(:", "SyntaxError: invalid syntax"),
    "RecursionError": ("broken_module:build", "def f(): f()\nf()", "RecursionError: maximum recursion"),
    "AttributeError": ("broken_module:build", "", "AttributeError: module 'broken_module' has no attribute 'build'"),
    "sys.exit": ("broken_module:build", "import sys\nsys.exit('bye')", "SystemExit: bye"),
    "BaseException": ("broken_module:build", "class Odd(BaseException): ...\nraise Odd('odd')", "Odd: odd"),
    "unprintable": (
        "broken_module:build",
        "class Mute(Exception):\n    def __str__(self): raise ValueError\nraise Mute",
        "Mute: (its text cannot be shown)",
    ),
    "many lines": ("broken_module:build", "raise ValueError('a\\n' * 1000)", "ValueError: a a a"),
    "not callable": ("broken_module:build", "build = 8", "broken_module:build must be callable, got int"),
}


def check_sound():
    """Check that the sound plugin is still listed, resolved, loaded and called."""
    assert [entry.distribution for entry in entries("algebras") if entry.name == "sound"] == ["sound-plugin"]
    assert create("algebras", "sound(n=2)") == ((), {"n": 2})
    assert "sound-plugin" not in [fault.distribution for fault in faults()]


def faults_of_broken():
    return [fault for fault in faults() if fault.distribution == "broken-plugin"]


@pytest.mark.parametrize("fault", UNREADABLE)
def test_unreadable_entry_points(good, fault):
    site = good.install("broken-plugin", UNREADABLE[fault])
    check_sound()
    [fault] = faults_of_broken()
    assert fault.reason.startswith("entry_points.txt: ")
    assert fault.path.startswith(str(site))
    if "broken" not in [entry.name for entry in entries("algebras")]:
        with raises("invalid", "broken-plugin", "zoo doctor"):
            resolve("algebras", "broken")


@pytest.mark.parametrize("fault", HARMLESS)
def test_entry_points_without_our_groups(good, fault):
    good.install("broken-plugin", HARMLESS[fault])
    check_sound()
    assert "broken-plugin" not in [entry.distribution for entry in entries("algebras")]


@pytest.mark.parametrize(
    ("metadata", "version"), [(None, "1.0"), ("", "1.0"), ("Version: 3.0\n", "3.0"), ("Name:\nVersion: 1.0\n", "1.0")]
)
def test_metadata_without_name(good, metadata, version):
    good.install("broken-plugin", GOOD_LINE, {"broken_module.py": "def build(): return 1"}, metadata=metadata)
    check_sound()
    [fault] = faults_of_broken()
    assert fault.reason.startswith("METADATA")
    entry, _ = resolve("algebras", "broken-plugin:broken")
    assert (entry.distribution, entry.version) == ("broken-plugin", version)
    assert load(entry)() == 1


def test_metadata_that_is_not_text(good):
    site = good.install("broken-plugin", GOOD_LINE)
    (site / "broken_plugin-1.0.dist-info" / "METADATA").write_bytes(b"Name: caf\xe9\n")
    check_sound()
    assert faults_of_broken()[0].reason.startswith("METADATA: UnicodeDecodeError")


def test_same_distribution_twice_first_wins(good):
    good.install("Broken_Plugin", GOOD_LINE, {"broken_module.py": "def build(): return 'second'"}, version="1.0")
    good.install("broken-plugin", GOOD_LINE, {"broken_module.py": "def build(): return 'first'"}, version="2.0")
    check_sound()
    assert [entry.version for entry in entries("algebras") if entry.name == "broken"] == ["2.0"]
    assert create("algebras", "broken") == "first"


def test_finder_that_fails(good, monkeypatch):
    class Finder:
        @staticmethod
        def find_distributions(context):
            raise RuntimeError("finder")

    monkeypatch.setattr("sys.meta_path", [*sys.meta_path, Finder])
    refresh()
    check_sound()
    assert [fault.reason for fault in faults() if "finder" in fault.reason]


@pytest.mark.parametrize("fault", UNLOADABLE)
def test_plugin_that_does_not_load(good, fault):
    value, source, text = UNLOADABLE[fault]
    good.install("broken-plugin", {"broken": value}, {"broken_module.py": source})
    assert "broken" in [entry.name for entry in entries("algebras")]
    with pytest.raises(PluginError) as caught:
        create("algebras", "broken")
    message = str(caught.value)
    assert message.startswith("algebra 'broken' of broken-plugin 1.0 does not load: ")
    assert message.endswith("pip uninstall broken-plugin")
    assert text in message
    assert "\n" not in message
    assert len(message) < 500
    assert (caught.value.__cause__ is None) == ("is not " in text or "must be" in text)
    assert str(pickle.loads(pickle.dumps(caught.value))) == message  # errors are sent between processes
    check_sound()


def test_our_own_entry_that_does_not_load(good):
    good.install("hypercomplex-zoo", {"broken": "broken_module:build"}, {"broken_module.py": "import no_such_thing"})
    with pytest.raises(PluginError, match=r"no_such_thing'; see: zoo doctor$"):
        create("algebras", "broken")


def test_noise_goes_to_stderr(good, capsys):
    good.install("noisy-plugin", {"noisy": "noisy:build"}, {"noisy.py": "print('noise')\ndef build(): return 1"})
    assert create("algebras", "noisy") == 1
    assert capsys.readouterr() == ("", "noise\n")
    sys.stdout.write("after")
    assert capsys.readouterr().out == "after"


def test_interrupt_while_loading_is_raised(good):
    good.install("slow-plugin", {"slow": "slow_module:build"}, {"slow_module.py": "raise KeyboardInterrupt"})
    with pytest.raises(KeyboardInterrupt, match=r"algebra 'slow' of slow-plugin 1\.0"):
        create("algebras", "slow")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("def build(): ...", None),
        ("print('noise')\nimport os\nos.write(1, b'noise\\n')\ndef build(): ...", None),
        ("import os\nos.abort()", "terminates the process that loads it (SIGABRT)"),
        ("import os\nos._exit(0)", "terminates the process that loads it (exit code 0)"),
        ("raise KeyboardInterrupt", "interrupted while"),
        ("import nothing_of_this_name", "does not load: ModuleNotFoundError"),
        ("import time\ntime.sleep(60)", "does not load within 2 s"),
    ],
)
def test_probe(good, source, text):
    good.install("risky-plugin", {"risky": "risky:build"}, {"risky.py": source})
    entry, _ = resolve("algebras", "risky")
    message = probe(entry, timeout=2.0 if "sleep" in source else 60.0)
    if text is None:
        assert message is None
    else:
        assert text in message
        assert "algebra 'risky' of risky-plugin 1.0" in message
