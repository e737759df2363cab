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
    A_COUNT: tl.constexpr,
    B_COUNT: tl.constexpr,
    OUT_COUNT: tl.constexpr,
    RANK: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Compute a tile [p, q] of all components of ``out``, [components, p, q], from a [components, p, s] and b [.., s, q].

    The factors are flat, [R * components], because Triton 3.6 does not read nested constants. The counts are numbers of
    components. WIDEN multiplies rounded operands in float32, since Triton's interpreter does not multiply bfloat16.
    """
    p = tl.program_id(0) * TILE + tl.arange(0, TILE)
    q = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = ()
    for _ in tl.static_range(OUT_COUNT):
        total = total + (tl.zeros((TILE, TILE), tl.float32),)
    for start in range(0, sizes[2], DEPTH):
        s = start + tl.arange(0, DEPTH)
        tiles_a = _tiles(a, p, sizes[0], s, sizes[2], a_strides, A_COUNT)
        tiles_b = _tiles(b, s, sizes[2], q, sizes[1], b_strides, B_COUNT)
        for r in tl.static_range(RANK):
            left = _combined(tiles_a, A_FACTOR, r, A_COUNT, a.dtype.element_ty, WIDEN)
            right = _combined(tiles_b, B_FACTOR, r, B_COUNT, b.dtype.element_ty, WIDEN)
            total = _add(total, tl.dot(left, right, input_precision=PRECISION), OUT_FACTOR, r, OUT_COUNT)
    inside = (p < sizes[0])[:, None] & (q < sizes[1])[None, :]
    for k in tl.static_range(OUT_COUNT):
        tl.store(out + _offsets(k, p, q, out_strides), total[k].to(out.dtype.element_ty), mask=inside)


@triton.jit
def _add(total, term, FACTOR: tl.constexpr, r: tl.constexpr, COUNT: tl.constexpr):
    """Add a term to the components of the result."""
    new = ()
    for k in tl.static_range(COUNT):
        y = total[k]
        if FACTOR[r * COUNT + k] != 0.0:
            y += term * FACTOR[r * COUNT + k]
        new = new + (y,)
    return new


@triton.jit
def _combined(tiles, FACTOR: tl.constexpr, r: tl.constexpr, COUNT: tl.constexpr, dtype: tl.constexpr, WIDEN: tl.constexpr):
    """Combine the components of a tile in float32 and round to the dtype of the operand."""
    total = tl.zeros(tiles[0].shape, tl.float32)
    for j in tl.static_range(COUNT):
        if FACTOR[r * COUNT + j] != 0.0:
            total += tiles[j].to(tl.float32) * FACTOR[r * COUNT + j]
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
