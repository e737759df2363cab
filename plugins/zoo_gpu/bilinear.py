r"""A Triton kernel for a bilinear product of R terms, which combines, multiplies and recombines components in one pass.

    out_k[p, q] = sum_r P[r, k] sum_s (L_r . a)[p, s] (Q_r . b)[s, q]

with L_r . a = sum_j L[r, j] a_j. The output of a layer and the gradients of its input and weight all have this form.
Importing this file imports Triton.
"""

import triton
import triton.language as tl


@triton.jit
def bilinear(
    a,
    b,
    out,
    sizes,
    a_strides,
    b_strides,
    out_strides,
    A_FACTOR: tl.constexpr,
    B_FACTOR: tl.constexpr,
    OUT_FACTOR: tl.constexpr,
    COMPONENTS: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Compute a tile [p, q] of all components of ``out``, [components, p, q], from a [components, p, s] and b [.., s, q].

    A_FACTOR and B_FACTOR hold the nonzero pairs (component, coefficient) of each of the R terms; OUT_FACTOR holds R
    coefficients for each component of ``out``. COMPONENTS are the numbers of components of a and b. WIDEN multiplies rounded
    operands in float32, since Triton's interpreter does not multiply bfloat16.
    """
    p = tl.program_id(0) * TILE + tl.arange(0, TILE)
    q = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = ()
    for _ in tl.static_range(len(OUT_FACTOR)):
        total = total + (tl.zeros((TILE, TILE), tl.float32),)
    for start in range(0, sizes[2], DEPTH):
        s = start + tl.arange(0, DEPTH)
        tiles_a = _tiles(a, p, sizes[0], s, sizes[2], a_strides, COMPONENTS[0])
        tiles_b = _tiles(b, s, sizes[2], q, sizes[1], b_strides, COMPONENTS[1])
        for r in tl.static_range(len(A_FACTOR)):
            left = _combined(tiles_a, A_FACTOR[r], a.dtype.element_ty, WIDEN)
            right = _combined(tiles_b, B_FACTOR[r], b.dtype.element_ty, WIDEN)
            total = _add(total, tl.dot(left, right, input_precision=PRECISION), OUT_FACTOR, r)
    inside = (p < sizes[0])[:, None] & (q < sizes[1])[None, :]
    for k in tl.static_range(len(OUT_FACTOR)):
        tl.store(out + _offsets(k, p, q, out_strides), total[k].to(out.dtype.element_ty), mask=inside)


@triton.jit
def _add(total, term, FACTOR: tl.constexpr, r: tl.constexpr):
    """Add a term to the components of the result."""
    new = ()
    for k in tl.static_range(len(FACTOR)):
        y = total[k]
        if FACTOR[k][r] != 0.0:
            y += term * FACTOR[k][r]
        new = new + (y,)
    return new


@triton.jit
def _combined(tiles, TERMS: tl.constexpr, dtype: tl.constexpr, WIDEN: tl.constexpr):
    """Combine the components of a tile in float32 and round to the dtype of the operand."""
    total = tiles[TERMS[0][0]].to(tl.float32) * TERMS[0][1]
    for t in tl.static_range(1, len(TERMS)):
        total += tiles[TERMS[t][0]].to(tl.float32) * TERMS[t][1]
    total = total.to(dtype)
    return total.to(tl.float32) if WIDEN else total


@triton.jit
def _tiles(tensor, u, u_size, v, v_size, strides, COUNT: tl.constexpr):
    """Load a tile [u, v] of each component, with zeros outside the tensor."""
    inside = (u < u_size)[:, None] & (v < v_size)[None, :]
    tiles = ()
    for j in tl.static_range(COUNT):
        tiles = tiles + (tl.load(tensor + _offsets(j, u, v, strides), mask=inside, other=0.0),)
    return tiles


@triton.jit
def _offsets(component, u, v, strides):
    return component * strides[0] + u.to(tl.int64)[:, None] * strides[1] + v.to(tl.int64)[None, :] * strides[2]
