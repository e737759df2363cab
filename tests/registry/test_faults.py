"""A broken plugin affects no other plugin, and the error names it."""

import pickle
import sys

import pytest

from tests.errors import raises
from zoo.registry import PluginError, create, entries, faults, resolve

GOOD_LINE = "[zoo.algebras]\nbroken = broken_module:build\n"

UNREADABLE = {
    "line without =": (GOOD_LINE + "no equals sign\n").encode(),
    "line without = in a foreign group": b"[console_scripts]\nno equals sign\n",
    "not UTF-8": GOOD_LINE.encode() + "[caf\xe9]\na = b:c\n".encode("latin-1"),
}
UNLOADABLE = {
    "no attribute": ("broken_module", "", "has no attribute 'broken'"),
    "no module": ("broken_elsewhere:build", "", "ModuleNotFoundError: No module named 'broken_elsewhere'"),
    "SyntaxError": ("broken_module:build", "def build(:", "SyntaxError: invalid syntax"),
    "AttributeError": ("broken_module:build", "", "AttributeError: module 'broken_module' has no attribute 'build'"),
    "sys.exit": ("broken_module:build", "import sys\nsys.exit('bye')", "SystemExit: bye"),
    "many lines": ("broken_module:build", "raise ValueError('a\\n' * 1000)", "ValueError: a a a"),
    "not callable": ("broken_module:build", "build = 8", "TypeError: broken_module:build must be callable"),
}


def check_sound():
    """Check that the sound plugin is still listed, resolved, loaded and called."""
    assert [entry.distribution for entry in entries("algebras") if entry.name == "sound"] == ["sound-plugin"]
    assert create("algebras", "sound(n=2)") == ((), {"n": 2})
    assert not [fault for fault in faults() if "sound_plugin" in fault.path]


def faults_of_broken():
    return [fault for fault in faults() if "broken_plugin" in fault.path]


@pytest.mark.parametrize("fault", UNREADABLE)
def test_unreadable_entry_points(good, fault):
    site = good.install("broken-plugin", UNREADABLE[fault])
    check_sound()
    [fault] = faults_of_broken()
    assert fault.path.startswith(str(site))
    with raises("invalid", "zoo doctor"):
        resolve("algebras", "unknown")


@pytest.mark.parametrize("metadata", [None, "", "Version: 3.0\n"])
def test_metadata_without_name(good, metadata):
    good.install("broken-plugin", GOOD_LINE, metadata=metadata)
    check_sound()
    assert "METADATA" in faults_of_broken()[0].reason


def test_same_distribution_twice_first_wins(good):
    good.install("Broken_Plugin", GOOD_LINE, {"broken_module.py": "def build(): return 'second'"}, version="1.0")
    good.install("broken-plugin", GOOD_LINE, {"broken_module.py": "def build(): return 'first'"}, version="2.0")
    check_sound()
    assert [entry.version for entry in entries("algebras") if entry.name == "broken"] == ["2.0"]
    assert create("algebras", "broken") == "first"


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
    assert str(pickle.loads(pickle.dumps(caught.value))) == message  # errors are sent between processes
    check_sound()


def test_noise_goes_to_stderr(good, capsys):
    good.install("noisy-plugin", {"noisy": "noisy:build"}, {"noisy.py": "print('noise')\ndef build(): return 1"})
    assert create("algebras", "noisy") == 1
    assert capsys.readouterr() == ("", "noise\n")
    sys.stdout.write("after")
    assert capsys.readouterr().out == "after"


def test_interrupt_while_loading_is_raised(good):
    good.install("slow-plugin", {"slow": "slow_module:build"}, {"slow_module.py": "raise KeyboardInterrupt"})
    with pytest.raises(KeyboardInterrupt):
        create("algebras", "slow")
