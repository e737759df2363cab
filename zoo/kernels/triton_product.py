r"""One Triton kernel for a bilinear product in R terms of components: combinations, block products and recombination in one.

    out_k[p, q] = sum_r RESULT[r, k] sum_s (LEFT_r . a)[p, s] (RIGHT_r . b)[s, q]

with LEFT_r . a = sum_j LEFT[r, j] a_j. A layer's output, the gradient of its input and that of its weight are all of this form,
with other factors and other tensors. Importing this file imports Triton.
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

    ``sizes`` are those of p, q and s; a share of s is ``shares[0]`` blocks, and its result ``shares[1]`` numbers further in
    ``out``. The axes of a tensor are the stride between its components and two axes (width, inner stride, outer stride, size):
    index i is at (i // width) outer + (i % width) inner, and entry j of the components has it if j width + i % width < size.
    The bias has the axis of the columns of ``out``.

    LEFT and RIGHT hold, for each of the R terms, pairs (component, coefficient) of what is not zero; RESULT holds, for every
    component of ``out``, R coefficients. COMPONENTS are the numbers of components of a and b. Terms are worked on in groups of
    GROUP, each with a sum of its own in registers. Where WIDEN is set, rounded operands are multiplied in float32: Triton's
    interpreter does not multiply bfloat16.
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
                one = _combined(tiles_a, LEFT[group + r], a.dtype.element_ty, WIDEN)
                other = _combined(tiles_b, RIGHT[group + r], b.dtype.element_ty, WIDEN)
                new = new + (tl.dot(one, other, sums[r], input_precision=PRECISION),)
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
    """Add to each component of the result what a group of terms, from the first on, gives it."""
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
    """Combine the components of a tile in float32, and round to the type of the operand."""
    total = tiles[TERMS[0][0]]
    if len(TERMS) > 1 or TERMS[0][1] != 1.0:
        total = total.to(tl.float32) * TERMS[0][1]
        for t in tl.static_range(1, len(TERMS)):
            total += tiles[TERMS[t][0]].to(tl.float32) * TERMS[t][1]
    total = total.to(dtype)
    return total.to(tl.float32) if WIDEN else total


@triton.jit
def _tiles(tensor, u, u_size, v, v_size, axes, COUNT: tl.constexpr):
    """Load a tile [u, v] of each component, with zeros where there is nothing."""
    place, inside = _places(u, u_size, v, v_size, axes)
    tiles = ()
    for j in tl.static_range(COUNT):
        has = inside & _has(j, u, axes[1])[:, None] & _has(j, v, axes[2])[None, :]
        tiles = tiles + (tl.load(tensor + j * axes[0] + place, mask=has, other=0.0),)
    return tiles


@triton.jit
def _store(total, out, bias, u, u_size, v, v_size, axes, HAS_BIAS: tl.constexpr):
    """Store a tile [u, v] of each component, with the bias of its columns."""
    place, inside = _places(u, u_size, v, v_size, axes)
    for j in tl.static_range(len(total)):
        y, has = total[j], _has(j, v, axes[2])
        if HAS_BIAS:
            at = j * axes[0] + (v // axes[2][0]) * axes[2][2] + (v % axes[2][0]) * axes[2][1]
            y += tl.load(bias + at, mask=(v < v_size) & has, other=0.0).to(tl.float32)[None, :]
        has = inside & has[None, :] & _has(j, u, axes[1])[:, None]
        tl.store(out + j * axes[0] + place, y.to(out.dtype.element_ty), mask=has)


@triton.jit
def _places(u, u_size, v, v_size, axes):
    """Return the places of a tile [u, v] in the memory of a component, and what of it is inside of the tensor."""
    rows = (u // axes[1][0]).to(tl.int64) * axes[1][2] + (u % axes[1][0]) * axes[1][1]
    columns = (v // axes[2][0]).to(tl.int64) * axes[2][2] + (v % axes[2][0]) * axes[2][1]
    return rows[:, None] + columns[None, :], (u < u_size)[:, None] & (v < v_size)[None, :]


@triton.jit
def _has(j, index, axis):
    """Whether entry j of the components has an index of an axis: the last elements may be cut."""
    return j * axis[0] + index % axis[0] < axis[3]
