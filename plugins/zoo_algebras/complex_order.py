"""The algebra of complex-valued networks with order embedding (Wang et al. 2020)."""

import torch

from zoo.algebras import Algebra
from zoo.errors import check_choice
from zoo_algebras.cayley_dickson import cayley_dickson


def complex_order(weights: str = "separate") -> Algebra:
    r"""Complex numbers with order embedding, Hermitian attention and modulus readout, n = 2.

    In the networks of Wang et al. (2020, App. B) layers multiply by W = A + iB (Eq. 10), attention scores are |q k*| (Eq. 14),
    and the outputs are moduli of complex numbers. Embedding, score and readout are defaults of this algebra; each can be
    overridden, and used with any other algebra.

    Args:
        weights: ``separate`` learns A and B; with ``shared`` A = B (App. B and Table 4), so that every weight is a multiple of
            1 + i and a layer has half as many. Biases are real in both cases.

    Raises:
        InputError: If ``weights`` is unknown.
    """
    check_choice("weights", weights, ("separate", "shared"))
    return Algebra(
        cayley_dickson(1).structure,
        left=torch.ones(1, 2) if weights == "shared" else None,
        defaults={"embedding": "complex_order", "score": "hermitian", "readout": "modulus"},
    )
