"""Parse and format spec strings: values, round trips and errors."""

import random

import pytest

from zoo.errors import InputError
from zoo.registry import Spec

DEEP = "x" + "(" * 16 + ")" * 16
MEANINGS = {
    "quaternion": {},
    "vit()": {},
    " vit ( depth = 6 , ) ": {"depth": 6},
    "timm/resnet18.a1_in1k": {},
    "dist-name:quaternion": {},
    "f(a=1, b=1.0, c=-2e3, d=1_000)": {"a": 1, "b": 1.0, "c": -2000.0, "d": 1000},
    "f(a=True, b=false, c=None, d=none, e=null)": {"a": True, "b": False, "c": None, "d": None, "e": None},
    "f(a=TRUE)": {"a": "TRUE"},
    "f(path=../data/sst)": {"path": "../data/sst"},
    "f(path=C:\\data, url=http://host/a=b#c)": {"path": "C:\\data", "url": "http://host/a=b#c"},
    "f(rule=clifford(p=0,q=2), n=4)": {"n": 4, "rule": "clifford(p=0,q=2)"},
    "f(a='x, y', b=\"it's\", c='8', d=8)": {"a": "x, y", "b": "it's", "c": "8", "d": 8},
    "f(a=[1, 2], b=(3,), c=(), d=[], e=(1))": {"a": [1, 2], "b": (3,), "c": (), "d": [], "e": 1},
    "f(a=[attention, ffn], b=(x, [true, 2]), c=(y))": {"a": ["attention", "ffn"], "b": ("x", [True, 2]), "c": "y"},
    "f(a=1+2, b=01, c=nan, d=exit('x'))": {"a": "1+2", "b": "01", "c": "nan", "d": "exit('x')"},
    "f(a=[x][0], b=(x)(y))": {"a": "[x][0]", "b": "(x)(y)"},
    "f(a='\\d')": {"a": "\\d"},
}


@pytest.mark.parametrize("text", MEANINGS)
def test_meaning(text):
    spec = Spec.parse(text)
    assert repr(spec.options) == repr(MEANINGS[text])
    assert spec.name == text.partition("(")[0].strip()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dim": 64, "act": "relu"}, "f(act=relu, dim=64)"),
        ({"a": "8", "b": "true", "c": "None", "d": "x,y", "e": ""}, "f(a='8', b='true', c='None', d='x,y', e='')"),
        ({"a": "../data/sst", "b": "clifford(p=0,q=2)"}, "f(a=../data/sst, b=clifford(p=0,q=2))"),
        ({"a": ["x", "8"], "b": (1,)}, "f(a=[x, '8'], b=(1,))"),
        ({"a": float("inf"), "b": -float("inf")}, "f(a=1e999, b=-1e999)"),
        ({"a": "x\ny", "b": " x", "c": "x y"}, "f(a='x\\ny', b=' x', c=x y)"),
        ({"a": [DEEP], "b": DEEP}, f"f(a=['{DEEP}'], b={DEEP})"),
        ({}, "f"),
    ],
)
def test_canonical_text_quotes_only_where_needed(options, text):
    assert str(Spec("f", options)) == text
    assert Spec.parse(text).options == options


def any_value(draw, depth=0):
    """Draw a value, often an unusual one."""
    kind = draw.randrange(8 if depth < 3 else 6)
    if kind < 3:
        pieces = ["a", "1", " ", ",", "=", "'", '"', "\\", "(", ")", "[", "]", "{", "}", "#", "-", ".", "e", "\n", "é"]
        pieces += ["true", "None", "b'", "[]", "()", "x", "_", "/", "f(a=1,b=2)", "\u200b"]
        return "".join(draw.choices(pieces, k=draw.randrange(6)))
    if kind == 3:
        return draw.choice([0, 1, -1, 10**30, -(2**70), True, False, None])
    if kind < 6:
        return draw.choice([0.0, -0.0, 1e-300, 1e22, 0.1, float("inf"), -float("inf"), draw.gauss(0, 1)])
    items = [any_value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return items if kind == 6 else tuple(items)


def test_round_trip():
    draw = random.Random(0)
    for _ in range(4000):
        spec = Spec("f", {key: any_value(draw) for key in "abc"[: draw.randrange(4)]})
        again = Spec.parse(str(spec))
        assert repr(again.options) == repr(spec.options), str(spec)
        assert again == spec
        assert str(again) == str(spec)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "invalid name ''"),
        ("vit(dim=64", "the last character is not ')'"),
        ("vit(64)", "'64' is not key=value"),
        ("vit(dim=)", "option 'dim' has no value"),
        ("vit(dim=1, dim=2)", "option 'dim' is given twice"),
        ("vit(dim=1,, a=2)", "empty item before a comma"),
        ("vit(a=[1)", "missing ']'"),
        ("vit(a='x)", "unterminated quote '"),
        ("vit(a={1: 2})", "invalid value"),
        ("vit(a=" + "[" * 17 + "]" * 17 + ")", "deeper than 16"),
        ("vit(a=" + "x" * 5000 + ")", "longer than 4096"),
    ],
)
def test_malformed_spec(text, reason):
    with pytest.raises(InputError) as caught:
        Spec.parse(text)
    message = str(caught.value)
    assert reason in message
    assert message.startswith("bad spec ")
    assert message.endswith("expected name or name(key=value, ...)")
    assert "\n" not in message
    assert len(message) < 300


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("f", {"a": float("nan")}),
        ("f", {"a": object()}),
        ("f", {"a-b": 1}),
    ],
)
def test_values_that_a_spec_cannot_express(name, options):
    with pytest.raises(InputError):
        Spec(name, options)
