"""Commands of plugins, from the entry group ``zoo.commands``."""

import sys

import pytest

GREET = '''
"""Greet somebody: zoo greet NAME."""

from zoo.cli.parser import Parser

def make_parser(command):
    return Parser(command, "Greet somebody.").positional("name", "who").switch("--loud", "shout")

def run(command, values):
    print(f"hello {values['name']}" + "!" * values["loud"])
    return 3
'''


@pytest.fixture
def installed(environment):
    """Fake distributions with a sound command, broken ones, and one with the name of a built-in command."""
    points = "[zoo.commands]\ngreet = greet_command\nfit = greet_command\n"
    environment.install("greetings", points, {"greet_command.py": GREET})
    points = (
        "[zoo.commands]\nbroken = broken_command\nempty = empty_command\nwrong = greet_command:run\nabsent = no_such_module\n"
    )
    modules = {"broken_command.py": '"""Break."""\nraise RuntimeError("boom")\n', "empty_command.py": '"""Do nothing."""\n'}
    environment.install("faulty", points, modules)


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


def test_suggestions_include_commands_of_plugins(installed, call):
    assert "did you mean 'greet'?" in call("gret").err


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("broken", "RuntimeError: boom"),
        ("empty", "must define make_parser and run"),
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


@pytest.mark.parametrize("name", ["export", "serve"])
def test_included_plugin_commands(name):
    from zoo.cli.commands import COMMANDS, load_command

    assert name not in COMMANDS
    assert load_command(name).__name__ == f"zoo_{name.replace('serve', 'serving')}.command"
