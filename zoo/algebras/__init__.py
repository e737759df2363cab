"""Algebras: bilinear products on R^n, given by their structure tensors."""

from zoo.algebras.product import Algebra, Draw, FactoredAlgebra, Factors, algebra, reals
from zoo.algebras.properties import Laws, laws, unit

__all__ = ["Algebra", "Draw", "FactoredAlgebra", "Factors", "Laws", "algebra", "laws", "reals", "unit"]
