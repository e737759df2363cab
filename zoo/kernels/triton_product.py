r"""A Triton kernel for a bilinear product of R terms, which combines, multiplies and recombines components in one pass.

    out_k[p, q] = sum_r RESULT[r, k] sum_s (LEFT_r . a)[p, s] (RIGHT_r . b)[s, q]

with LEFT_r . a = sum_j LEFT[r, j] a_j. The output of a layer and the gradients of its input and weight all have this form.
Importing this file imports Triton.
"""

import triton
import triton.language as tl


@triton.jit
def bilinear(
    a,
    b,
    out,
    bias,
    sizes,
    shares,
    a_axes,
    b_axes,
    out_axes,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    RESULT: tl.constexpr,
    COMPONENTS: tl.constexpr,
    BLOCKS: tl.constexpr,
    GROUP: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PRECISION: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Compute a tile [p, q] of all components of ``out``, of BLOCKS (p, q, s), over one share of s.

    ``sizes`` are the sizes of p, q and s. A share of s has ``shares[0]`` blocks, and the results of two shares are
    ``shares[1]`` numbers apart in ``out``. The axes of a tensor are the stride between its components and two axes (width,
    inner stride, outer stride, size): index i has the offset (i // width) outer + (i % width) inner, and exists in component j
    if j width + i % width < size. The bias has the column axis of ``out``.

    LEFT and RIGHT hold the nonzero pairs (component, coefficient) of each of the R terms; RESULT holds R coefficients for each
    component of ``out``. COMPONENTS are the numbers of components of a and b. Terms are processed in groups of GROUP, with one
    sum per term in registers. WIDEN multiplies rounded operands in float32, since Triton's interpreter does not multiply
    bfloat16.
    """
    p = tl.program_id(0) * BLOCKS[0] + tl.arange(0, BLOCKS[0])
    q = tl.program_id(1) * BLOCKS[1] + tl.arange(0, BLOCKS[1])
    share = tl.program_id(2)
    first = share * (shares[0] * BLOCKS[2])
    last = tl.minimum(first + shares[0] * BLOCKS[2], sizes[2])
    total = _zeros(len(RESULT), BLOCKS)
    for group in tl.static_range(0, len(LEFT), GROUP):
        sums = _zeros(min(GROUP, len(LEFT) - group), BLOCKS)
        for start in range(first, last, BLOCKS[2]):
            s = start + tl.arange(0, BLOCKS[2])
            tiles_a = _tiles(a, p, sizes[0], s, sizes[2], a_axes, COMPONENTS[0])
            tiles_b = _tiles(b, s, sizes[2], q, sizes[1], b_axes, COMPONENTS[1])
            new = ()
            for r in tl.static_range(len(sums)):
                left = _combined(tiles_a, LEFT[group + r], a.dtype.element_ty, WIDEN)
                right = _combined(tiles_b, RIGHT[group + r], b.dtype.element_ty, WIDEN)
                new = new + (tl.dot(left, right, sums[r], input_precision=PRECISION),)
            sums = new
        total = _add(total, sums, RESULT, group)
    _store(total, out + share * shares[1], bias, p, sizes[0], q, sizes[1], out_axes, HAS_BIAS)


@triton.jit
def _zeros(COUNT: tl.constexpr, BLOCKS: tl.constexpr):
    sums = ()
    for _ in tl.static_range(COUNT):
        sums = sums + (tl.zeros((BLOCKS[0], BLOCKS[1]), tl.float32),)
    return sums


@triton.jit
def _add(total, sums, RESULT: tl.constexpr, first: tl.constexpr):
    """Add the sums of a group of terms, which starts at ``first``, to the components of the result."""
    new = ()
    for k in tl.static_range(len(RESULT)):
        y = total[k]
        for r in tl.static_range(len(sums)):
            if RESULT[k][first + r] != 0.0:
                y += sums[r] * RESULT[k][first + r]
        new = new + (y,)
    return new


@triton.jit
def _combined(tiles, TERMS: tl.constexpr, dtype: tl.constexpr, WIDEN: tl.constexpr):
    """Combine the components of a tile in float32 and round to the dtype of the operand."""
    total = tiles[TERMS[0][0]]
    if len(TERMS) > 1 or TERMS[0][1] != 1.0:
        total = total.to(tl.float32) * TERMS[0][1]
        for t in tl.static_range(1, len(TERMS)):
            total += tiles[TERMS[t][0]].to(tl.float32) * TERMS[t][1]
    total = total.to(dtype)
    return total.to(tl.float32) if WIDEN else total


@triton.jit
def _tiles(tensor, u, u_size, v, v_size, axes, COUNT: tl.constexpr):
    """Load a tile [u, v] of each component, with zeros outside the tensor."""
    offset, inside = _offsets(u, u_size, v, v_size, axes)
    tiles = ()
    for j in tl.static_range(COUNT):
        mask = inside & _exists(j, u, axes[1])[:, None] & _exists(j, v, axes[2])[None, :]
        tiles = tiles + (tl.load(tensor + j * axes[0] + offset, mask=mask, other=0.0),)
    return tiles


@triton.jit
def _store(total, out, bias, u, u_size, v, v_size, axes, HAS_BIAS: tl.constexpr):
    """Store a tile [u, v] of each component, plus the bias."""
    offset, inside = _offsets(u, u_size, v, v_size, axes)
    for j in tl.static_range(len(total)):
        y, mask = total[j], _exists(j, v, axes[2])
        if HAS_BIAS:
            column = j * axes[0] + (v // axes[2][0]) * axes[2][2] + (v % axes[2][0]) * axes[2][1]
            y += tl.load(bias + column, mask=(v < v_size) & mask, other=0.0).to(tl.float32)[None, :]
        mask = inside & mask[None, :] & _exists(j, u, axes[1])[:, None]
        tl.store(out + j * axes[0] + offset, y.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _offsets(u, u_size, v, v_size, axes):
    """Return the offsets of a tile [u, v] in a component, and a mask of the indices inside the tensor."""
    rows = (u // axes[1][0]).to(tl.int64) * axes[1][2] + (u % axes[1][0]) * axes[1][1]
    columns = (v // axes[2][0]).to(tl.int64) * axes[2][2] + (v % axes[2][0]) * axes[2][1]
    return rows[:, None] + columns[None, :], (u < u_size)[:, None] & (v < v_size)[None, :]


@triton.jit
def _exists(j, index, axis):
    """Return whether an index of an axis exists in component j; the last elements may be truncated."""
    return j * axis[0] + index % axis[0] < axis[3]
