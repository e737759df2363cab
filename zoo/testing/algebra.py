"""The contract of an algebra."""

from zoo.testing.conv import ConvContract
from zoo.testing.kernel import KernelContract
from zoo.testing.linear import LinearContract
from zoo.testing.product import ProductContract
from zoo.testing.state import StateContract


class AlgebraContract(ProductContract, KernelContract, LinearContract, ConvContract, StateContract):
    """What an algebra must fulfil to work in every layer of the zoo; subclass it in a test file and pytest runs it.

    >>> from zoo.algebras import Laws
    >>> class TestComplex(AlgebraContract):
    ...     spec = "complex"
    ...     laws = Laws(unital=True, commutative=True, associative=True, alternative=True, normed=True)
    >>> TestComplex().test_laws_are_as_declared()

    Attributes:
        spec: The algebra's spec; or override `algebra()`, which returns a new object at every call.
        laws: What the textbook says of it; None if there is no such promise.
    """
