"""Which ways of decoding make sense."""

import pytest

from zoo.errors import InputError
from zoo.tasks.decoding import check_decoding
from zoo.tasks.decoding.options import Decoding, temperature_of


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam": 4, "length_penalty": 0.0, "temperature": 0.0, "repetition_penalty": 1.3},
        {"temperature": 2.0, "top_k": 1, "top_p": 1.0, "length": 1, "seed": 7},
    ],
)
def test_what_makes_sense_is_silent(options):
    check_decoding(Decoding(**options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed=-1: use a whole number from 0"),
        ({"beam": 100000}, "beam=100000: a beam has from 1 to 256"),
        ({"beam": 0}, "beam=0: a beam has from 1 to 256 hypotheses"),
        ({"length_penalty": -0.5}, "length_penalty=-0.5: the exponent is between 0 and 10"),
        ({"length_penalty": float("nan")}, "length_penalty=nan: "),
        ({"length": 0}, "length=0: write one token or more"),
        ({"temperature": -1.0}, "temperature=-1.0: it is a number from 0 on"),
        ({"temperature": float("inf")}, "temperature=inf: "),
        ({"temperature": float("nan")}, "temperature=nan: "),
        ({"top_k": 0}, "top_k=0: draw among one word or more"),
        ({"top_p": 0.0}, "top_p=0.0: a share of the probability is above 0 and at most 1"),
        ({"top_p": 1.5}, "top_p=1.5: "),
        ({"repetition_penalty": 0.0}, "repetition_penalty=0.0: it is between 0.01 and 100"),
        ({"repetition_penalty": float("inf")}, "repetition_penalty=inf: "),
        ({"beam": 2, "temperature": 0.5}, "beam=2 and temperature=0.5: a beam draws nothing; use one of the two"),
        ({"beam": 2, "top_k": 3}, "beam=2 and top_k=3: "),
        ({"beam": 2, "top_p": 0.5}, "beam=2 and top_p=0.5: "),
    ],
)
def test_what_makes_none_is_one_line(options, message):
    with pytest.raises(InputError) as caught:
        check_decoding(Decoding(**options))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_the_temperature_depends_on_what_is_written():
    assert temperature_of(Decoding(), answers=True) == 0
    assert temperature_of(Decoding(), answers=False) == 0.8
    assert temperature_of(Decoding(temperature=0.3), answers=True) == 0.3
    assert temperature_of(Decoding(temperature=0.0), answers=False) == 0


@pytest.mark.parametrize(("options", "answers"), [({"top_k": 5}, True), ({"top_p": 0.5, "temperature": 0.0}, False)])
def test_nothing_can_be_drawn_at_a_temperature_of_0(options, answers):
    with pytest.raises(InputError, match="nothing is drawn at a temperature of 0: use --temperature 1"):
        temperature_of(Decoding(**options), answers)
