"""Algebras: bilinear products on R^n, given by their structure tensors."""

from zoo.algebras.product import Algebra as Algebra
from zoo.algebras.product import Draw as Draw
from zoo.algebras.product import FactoredAlgebra as FactoredAlgebra
from zoo.algebras.product import action as action
from zoo.algebras.product import algebra as algebra
from zoo.algebras.product import factor_literals as factor_literals
from zoo.algebras.product import factors_of as factors_of
from zoo.algebras.product import is_reals as is_reals
from zoo.algebras.product import laws as laws
from zoo.algebras.product import literal as literal
from zoo.algebras.product import reals as reals
from zoo.algebras.properties import Factors as Factors
from zoo.algebras.properties import Laws as Laws
from zoo.algebras.properties import factorize as factorize
from zoo.algebras.properties import unit as unit
