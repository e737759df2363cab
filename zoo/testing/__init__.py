"""Contracts that plugin authors subclass in their own tests: an algebra, backbone or task that passes works in all of the zoo.

>>> from zoo.testing import AlgebraContract
>>> class TestReal(AlgebraContract):
...     spec = "real"
>>> TestReal().test_product_is_the_definition()
"""

import pytest

# Without this, a failing contract would show a bare AssertionError instead of the two values it compared.
pytest.register_assert_rewrite(*(f"zoo.testing.{name}" for name in ("product", "algebra", "backbone", "definition", "task")))

from zoo.testing.algebra import AlgebraContract  # noqa: E402
from zoo.testing.backbone import BackboneContract  # noqa: E402
from zoo.testing.task import TaskContract  # noqa: E402

__all__ = ["AlgebraContract", "BackboneContract", "TaskContract"]
