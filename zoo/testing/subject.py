"""What every part of the algebra contract is about."""

from zoo.algebras import Algebra, Laws, algebra


class Subject:
    """The algebra under test.

    Attributes:
        spec: Its spec; or override `algebra`.
        laws: The laws the author promises; None promises none, as for a rule that is learned.
    """

    spec: str = ""
    laws: Laws | None = None

    def algebra(self) -> Algebra:
        """Create the algebra, a new object at every call."""
        return algebra(self.spec)

    def rule(self) -> Algebra:
        """Create the algebra in float64, where a law that holds leaves no visible rounding."""
        return self.algebra().double()
