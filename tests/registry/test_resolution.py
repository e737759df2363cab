"""Resolve specs and build objects; a broken plugin affects no other plugin, and the error names it."""

import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Annotated, Any

import numpy as np
import pytest

from tests.errors import raises
from zoo.errors import InputError
from zoo.registry import PluginError, Spec, check_option, create, entries, faults, passes_options_to, resolve
from zoo.registry.limits import bounded


@pytest.mark.parametrize(
    ("spec", "name", "canonical"),
    [
        ("phm(rank=2, n=8)", "phm", "phm(n=8, rank=2)"),
        ("phm-8(rank=2)", "phm", "phm(n=8, rank=2)"),
        ("hypercomplex-zoo:phm-8", "phm", "hypercomplex-zoo:phm(n=8)"),
        ("Hypercomplex_Zoo:quaternion", "quaternion", "Hypercomplex_Zoo:quaternion"),
        ("resnet/18.a1_in1k", "resnet", "resnet(variant=18.a1_in1k)"),
        ("resnet/18", "resnet", "resnet(variant='18')"),
        ("hypercomplex-zoo:resnet/v-2(width=2.0)", "resnet", "hypercomplex-zoo:resnet(variant=v-2, width=2.0)"),
    ],
)
def test_names_and_short_forms(ours, spec, name, canonical):
    entry, resolved = resolve("algebras", spec)
    assert (entry.name, str(resolved)) == (name, canonical)
    assert resolve("algebras", resolved) == (entry, resolved)
    assert resolve("algebras", Spec.parse(spec)) == (entry, resolved)


@pytest.mark.parametrize("text", ["phm-8(n=4)", "resnet/18(variant=34)"])
def test_short_form_and_option_together(ours, text):
    with raises("invalid", text):
        resolve("algebras", text)


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("quaternoin", "did you mean 'quaternion'?"),
        ("Quaternion", "did you mean 'quaternion'?"),
        ("PHM-8", "did you mean 'phm-8'?"),
        ("zzzzzzzzzz", "installed: "),
    ],
)
def test_unknown_name(ours, asked, hint):
    with pytest.raises(InputError) as caught:
        resolve("algebras", asked)
    message = str(caught.value)
    assert message.startswith(f"unknown algebra '{asked}': {hint}")
    assert "octonion, phm, quaternion" in message
    assert "zoo list algebras" in message
    assert "\n" not in message


def test_name_of_two_distributions(ours):
    ours.install("other-plugin", {"quaternion": "other:build"}, {"other.py": "def build(): return 'other'"})
    with raises("invalid", "'quaternion'", "other-plugin:quaternion or hypercomplex-zoo:quaternion"):
        create("algebras", "quaternion")
    assert create("algebras", "hypercomplex-zoo:quaternion") == "quaternion"
    assert create("algebras", "other-plugin:quaternion") == "other"
    assert create("algebras", "phm-8") == ("phm", 8, None)


def test_create_checks_options_before_calling(ours):
    source = "def build(layers, *, classes, dim=64, depth=6, act=print, **_unused): raise AssertionError"
    ours.install("net-plugin", {"net": "net:build", "bare": "net:bare"}, {"net.py": source.replace(", **_unused", "")})
    context = {"classes": 10, "unwanted": 1}
    usage = "net(dim=64, depth=6, act=<builtin_function_or_method>)"
    with raises("unknown", "'dpeth' of net", "'depth'", usage):
        create("algebras", "net(dpeth=3)", "layers", **context)
    with raises("unknown", "'layers' of net"):
        create("algebras", "net(layers=3)", "layers", **context)
    with raises("missing", "'classes'", "net(classes, dim=64"):
        create("algebras", "net", "layers")


def test_context_is_offered_and_the_spec_wins(ours):
    source = "def some(a, b=1, *, c): return a, b, c\ndef all_of(a, **rest): return a, rest\nkind = dict"
    points = {"some": "ctx:some", "all_of": "ctx:all_of", "kind": "ctx:kind"}
    ours.install("ctx-plugin", points, {"ctx.py": source})
    assert create("algebras", "some", 0, c=3, d=4, a=9) == (0, 1, 3)
    assert create("algebras", "some(c=5)", 0, c=3, group=1, spec=2) == (0, 1, 5)
    assert create("algebras", "all_of(b=1)", 0, b=2, group=3, a=9) == (0, {"b": 1, "group": 3})
    assert create("algebras", "kind(a=1)") == {"a": 1}
    with raises("unknown", "'a' of all_of", "all_of(...)"):
        create("algebras", "all_of(a=1)", 0)


def test_failure_inside_our_own_factory(ours):
    assert create("algebras", "clifford(p=2)") == ("clifford", 2, 0, 0)
    with raises("invalid", "p must not be negative"):
        create("algebras", "clifford(p=-1)")
    with raises("invalid", "clifford(p=abc)", "'<' not supported between") as caught:
        create("algebras", "clifford(p=abc)")
    assert isinstance(caught.value.__cause__, TypeError)
    assert not isinstance(caught.value, PluginError)
    with pytest.raises(ValueError, match="a defect of ours") as defect:
        create("algebras", "octonion")
    assert not isinstance(defect.value, InputError)


@pytest.mark.parametrize("error", ["KeyError('gone')", "SystemExit(3)", "ValueError('two\\nlines')"])
def test_failure_inside_a_third_party_factory(ours, error):
    ours.install("bad-plugin", {"bad": "bad_factory:build"}, {"bad_factory.py": f"def build(x=1): raise {error}"})
    with raises("invalid", "algebra 'bad' of bad-plugin 1.0", "'bad(x=2)'") as caught:
        create("algebras", "bad(x=2)")
    assert isinstance(caught.value, PluginError)
    assert type(caught.value.__cause__).__name__ in str(caught.value)


def test_input_error_of_a_third_party_is_not_wrapped(ours):
    source = "from zoo.errors import InputError\ndef build(): raise InputError('fix this')"
    ours.install("polite-plugin", {"polite": "polite:build"}, {"polite.py": source})
    with raises("invalid", "fix this") as caught:
        create("algebras", "polite")
    assert not isinstance(caught.value, PluginError)


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


def test_an_unknown_group_is_a_fault_and_the_other_groups_count(good):
    good.install("broken-plugin", GOOD_LINE + "[zoo.algebra]\nb = c:d\n")
    [fault] = faults_of_broken()
    assert "unknown group of entry points 'zoo.algebra': use zoo.algebras" in fault.reason
    assert {entry.distribution for entry in entries("algebras")} >= {"broken-plugin", "sound-plugin"}


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


@dataclass(frozen=True)
class Rate:
    """Options with a name, which a spec can describe."""

    name: str = "fixed"
    value: float = bounded("[0, 1)", 0.5)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (int, np.int64(3), 3),
        (float, np.float32(0.5), 0.5),
        (float | None, 1, 1.0),
        (Annotated[float, "[0, 1)"], 0, 0.0),
        (Rate | None, None, None),
        (Rate, "linear(value=0.25)", Rate("linear", 0.25)),
        (Rate | Mapping[str, Any], {"value": 0}, Rate("fixed", 0.0)),
        (tuple[int, ...] | str, "a,b", "a,b"),
        (list[int], [1, 2], [1, 2]),
        (Annotated[float, "[0, 1)"] | None, None, None),
    ],
    ids=str,
)
def test_options_become_values_of_their_types(kind, value, expected):
    checked = check_option("x", kind, value)
    assert (checked, type(checked)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("kind", "value", "named"),
    [
        (int, True, "x=True"),
        (int, np.float64(0.5), "x=0.5"),
        (Annotated[float, "[0, 1)"], 1, "[0, 1)"),
        (Annotated[float, "[0, 1)"] | None, 7.0, "[0, 1)"),
        (Annotated[float, "[0, 1)"] | None, "abc", "x='abc'"),
        (Annotated[float, "[0, inf)"], float("nan"), "be finite"),
        (Annotated[int, f"[0, {2**63 - 1}]"], 2**63, str(2**63)),
        (Rate, {"value": 1.0}, "x.value=1.0"),
        (Rate | str, 3, "x=3"),
    ],
    ids=str,
)
def test_wrong_options_name_the_option_and_its_values(kind, value, named):
    with raises("invalid", named):
        check_option("x", kind, value)


def test_passed_options_have_the_defaults_of_the_function_that_passes_them():
    def target(data, *, size: int = 1, depth: int = 2):
        return size, depth

    @passes_options_to(target, "depth", size=5, extra="a")
    def preset(path: str | None = None, **options):
        return options

    assert str(signature(preset)) == "(path: str | None = None, *, extra: str = 'a', size: int = 5)"
    assert (preset(), preset(size=7)) == ({"size": 5, "extra": "a"}, {"size": 7, "extra": "a"})
