"""Test contracts for plugins: subclass one in a test file to check an algebra, a backbone or a task.

>>> from zoo.testing import AlgebraContract
>>> class TestReal(AlgebraContract):
...     spec = "real"
>>> TestReal().test_product_is_the_definition()
"""

import pytest

# Let a failing contract show the compared values, as in test files.
pytest.register_assert_rewrite(*(f"zoo.testing.{name}" for name in ("algebra", "backbone", "definition", "task")))

from zoo.testing.algebra import AlgebraContract  # noqa: E402
from zoo.testing.backbone import BackboneContract  # noqa: E402
from zoo.testing.task import TaskContract  # noqa: E402

__all__ = ["AlgebraContract", "BackboneContract", "TaskContract"]
