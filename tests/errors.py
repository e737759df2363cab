"""Check errors by code and by the values in the message, not by its wording."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from zoo.errors import ErrorCode, InputError


@contextmanager
def raises(code: ErrorCode, *values: object) -> Iterator[pytest.ExceptionInfo[InputError]]:
    """Expect an `InputError` with a given code and a one-line message that contains all values."""
    with pytest.raises(InputError) as caught:
        yield caught
    message = str(caught.value)
    assert caught.value.code == code, f"{caught.value.code}: {message}"
    assert "\n" not in message
    for value in values:
        assert str(value) in message, f"{value} is missing in: {message}"
