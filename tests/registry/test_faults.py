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
    "no attribute": ("broken_module:broken", "", "has no attribute 'broken'"),
    "SyntaxError": ("broken_module:build", "def build(:", "SyntaxError: invalid syntax"),
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
    with raises("unknown", "zoo doctor"):
        resolve("algebras", "unknown")


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
