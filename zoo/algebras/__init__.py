"""An algebra is a value: a bilinear product on R^n, written down once as its structure tensor."""

from zoo.algebras.product import Algebra, Draw, FactoredAlgebra, Factors, algebra, reals
from zoo.algebras.properties import Laws, laws, unit

__all__ = ["Algebra", "Draw", "FactoredAlgebra", "Factors", "Laws", "algebra", "laws", "reals", "unit"]
