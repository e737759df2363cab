"""Checks of decoding options."""

import pytest

from tests.errors import raises
from zoo.tasks.decoding import check_decoding
from zoo.tasks.options import Decoding, temperature_of


@pytest.mark.parametrize(
    "options",
    [
        {"beam": 0},
        {"temperature": float("nan")},
        {"top_k": 0},
        {"top_p": 0.0},
        {"beam": 2, "top_p": 0.5},
    ],
    ids=str,
)
def test_invalid_options(options):
    with raises("invalid", *(f"{name}={value}" for name, value in options.items())):
        check_decoding(Decoding(**options))


def test_the_default_temperature_depends_on_the_task():
    assert temperature_of(Decoding(), answers=True) == 0
    assert temperature_of(Decoding(), answers=False) == 0.8
    assert temperature_of(Decoding(temperature=0.3), answers=True) == 0.3
    assert temperature_of(Decoding(temperature=0.0), answers=False) == 0


@pytest.mark.parametrize(("options", "answers"), [({"top_k": 5}, True), ({"top_p": 0.5, "temperature": 0.0}, False)])
def test_a_temperature_of_0_excludes_top_k_and_top_p(options, answers):
    with raises("invalid", next(iter(options)), "--temperature 1"):
        temperature_of(Decoding(**options), answers)
