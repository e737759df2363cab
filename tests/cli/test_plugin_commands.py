"""Commands of plugins, from the entry group ``zoo.commands``."""

import sys

import pytest

GREET = '''
def greet(name: str, *, loud: bool = False) -> int:
    """Greet somebody: zoo greet NAME.

    Args:
        name: Who.
        loud: Shout.
    """
    print(f"hello {name}" + "!" * loud)
    return 3
'''


@pytest.fixture
def installed(environment):
    """Fake distributions with a sound command, broken ones, and one with the name of a built-in command."""
    points = "[zoo.commands]\ngreet = greet_command:greet\nfit = greet_command:greet\n"
    environment.install("greetings", points, {"greet_command.py": GREET})
    points = "[zoo.commands]\nbroken = broken_command:run\nempty = empty_command:run\nabsent = no_such_module:run\n"
    source = 'def run() -> None:\n    """Break."""\nraise RuntimeError("boom")\n'
    environment.install("faulty", points, {"broken_command.py": source, "empty_command.py": "run = 3\n"})


def test_a_plugin_adds_a_command(installed, call):
    assert call("greet", "Ada", "--loud") == (3, "hello Ada!\n", "")
    code, out, err = call("greet", "Ada", "--lou")
    assert (code, out) == (2, "")
    assert "--loud" in err


def test_help_lists_commands_of_plugins_without_importing_them(installed, call):
    page = call("--help").out
    assert "  greet       Greet somebody: zoo greet NAME [greetings 1.0]\n" in page
    assert "  broken      Break [faulty 1.0]\n" in page
    assert "  fit         Train a network" in page
    assert not {"greet_command", "broken_command"} & sys.modules.keys()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("broken", "RuntimeError: boom"),
        ("absent", "no_such_module"),
    ],
)
def test_broken_plugins_affect_only_their_own_commands(installed, call, name, reason):
    code, out, err = call(name)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"command '{name}' of faulty 1.0 does not load" in err
    assert reason in err
    assert call("greet", "Ada").code == 3


def test_completion_includes_commands_of_plugins(installed, call):
    code, out, err = call("completion", "bash")
    assert (code, err) == (0, "")
    assert 'greet) choices="--help --loud"' in out
    assert " greet" in out.splitlines()[2]
    assert " broken" in out.splitlines()[2]
