r"""Triton kernels that assemble real matrices, and sum their gradients, for one algebra each; importing this imports Triton.

A kernel is written as text, with the constants of a fixed product folded in: the 64 blocks of an octonion matrix are 64 signed
copies without a table. For a learned product the coefficients are read. One program computes a tile of elements of one of up
to `SLOTS` weights. Components are [m, P, Q]. The axes of the matrix consist of vectors of n * PW and n * QW channels, of which
the first SO and SI exist.
"""

import linecache
from functools import lru_cache
from hashlib import sha256
from typing import Any

import triton
import triton.language as tl

from zoo.kernels.assembly import entries

SLOTS = 16  # weights of a launch
Coefficients = dict[tuple[int, int, int], str]

HEAD = """    pid = tl.program_id(0)
    which, t = tl.load(tiles + 2 * pid), tl.load(tiles + 2 * pid + 1)
    row = meta + which * 6
    P, PW, SO = tl.load(row), tl.load(row + 2), tl.load(row + 4)
    Q, QW, SI = tl.load(row + 1), tl.load(row + 3), tl.load(row + 5)
    Q, QW, SI = tl.multiple_of(Q, V), tl.multiple_of(QW, V), tl.multiple_of(SI, V)
    per = tl.cdiv(Q, TQ)
    p, q = (t // per) * TP + tl.arange(0, TP), (t % per) * TQ + tl.arange(0, TQ)
    inside = (p < P)[:, None] & (q < Q)[None, :]
    element, size = p[:, None] * Q + q[None, :], P * Q
    y, x, width = p % PW, q % QW, tl.multiple_of((Q // QW) * SI, V)
    # Triton cannot see that columns are contiguous in runs of V: without the hint it stores one at a time.
    column = tl.max_contiguous(tl.multiple_of((q // QW) * SI + x, V), V)
    at = ((p // PW) * SO + y)[:, None] * width + column[None, :]
"""


def _pick(name: str, pointer: str) -> str:
    """Write the choice of the address of this weight among the arguments."""
    lines = [f"    {name} = {name}0\n"] + [f"    {name} = tl.where(which == {i}, {name}{i}, {name})\n" for i in range(1, SLOTS)]
    return "".join(lines) + f"    {name} = tl.multiple_of({name}.to(tl.int64).to(tl.pointer_type({pointer})), 16)\n"


def _slots(*names: str) -> str:
    return ", ".join(f"{name}{i}" for name in names for i in range(SLOTS))


def weighted_sum(terms: list[tuple[str, str]]) -> str:
    """Write a sum of coefficients times names."""
    parts = [f"{value} * {name}" if value not in ("1.0", "-1.0") else value[:-3] + name for value, name in terms]
    return " + ".join(parts)


def _block(k: int, j: int) -> tuple[str, str]:
    """Write the offset of a block of the matrix, and the mask of its entries that exist."""
    mask = f"(inside & ({k} * PW + y < SO)[:, None] & ({j} * QW + x < SI)[None, :]) if PADDED else inside"
    return f"at + ({k} * PW * width + {j} * QW)", mask


def _read(m: int, n: int) -> str:
    """Write reading the coefficients of a learned product."""
    places = [(i, j, k) for i in range(m) for j in range(n) for k in range(n)]
    names = [f"    a{i}_{j}_{k} = tl.load(a + {(i * n + j) * n + k}).to(tl.float32)\n" for i, j, k in places]
    return _pick("a", "IN") + "".join(names)


def _components(m: int) -> str:
    loads = [f"    w{i}_ = tl.load(w + {i} * size + element, mask=inside, other=0.0).to(tl.float32)\n" for i in range(m)]
    return _pick("w", "IN") + "".join(loads)


def _assembly(m: int, n: int, known: Coefficients, learned: bool) -> str:
    constants = "IN: tl.constexpr, OUT: tl.constexpr, V: tl.constexpr, PADDED: tl.constexpr, TP: tl.constexpr, TQ: tl.constexpr"
    arguments = _slots("w", "o", *(["a"] if learned else []))
    text = f"@triton.jit\ndef assemble(meta, tiles, {arguments}, {constants}):\n{HEAD}"
    text += (_read(m, n) if learned else "") + _components(m) + _pick("o", "OUT")
    for k in range(n):
        for j in range(n):
            terms = [(known[i, j, k], f"w{i}_") for i in range(m) if (i, j, k) in known]
            offset, mask = _block(k, j)
            value = weighted_sum(terms) or "tl.zeros((TP, TQ), tl.float32)"
            text += f"    tl.store(o + {offset}, ({value}).to(OUT), mask={mask})\n"
    return text


def _gradient(m: int, n: int, known: Coefficients, learned: bool) -> str:
    constants = "IN: tl.constexpr, OUT: tl.constexpr, V: tl.constexpr, PADDED: tl.constexpr, TP: tl.constexpr, TQ: tl.constexpr"
    arguments = _slots("g", "d", *(["w", "a"] if learned else []))
    text = f"@triton.jit\ndef gradient(meta, tiles, partial, {arguments}, {constants}):\n{HEAD}"
    text += (_read(m, n) + _components(m) if learned else "") + _pick("g", "OUT") + _pick("d", "IN")
    text += "".join(f"    s{i} = tl.zeros((TP, TQ), tl.float32)\n" for i in range(m))
    for k in range(n):
        for j in range(n):
            used = [i for i in range(m) if (i, j, k) in known]
            if not used:
                continue
            offset, mask = _block(k, j)
            text += f"    b = tl.load(g + {offset}, mask={mask}, other=0.0).to(tl.float32)\n"
            text += "".join(f"    s{i} += {weighted_sum([(known[i, j, k], 'b')])}\n" for i in used)
            if learned:
                places = [f"partial + pid * {m * n * n} + {(i * n + j) * n + k}" for i in used]
                text += "".join(f"    tl.store({place}, tl.sum(b * w{i}_))\n" for i, place in zip(used, places, strict=True))
    return text + "".join(f"    tl.store(d + {i} * size + element, s{i}.to(IN), mask=inside)\n" for i in range(m))


SUMS = f"""@triton.jit
def sum_tiles(meta, partial, {_slots("c")}, SIZE: tl.constexpr, WIDTH: tl.constexpr, IN: tl.constexpr):
    which = tl.program_id(0)
    first, last = tl.load(meta + 2 * which), tl.load(meta + 2 * which + 1)
    column = tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), tl.float32)
    for tile in range(first, last):
        total += tl.load(partial + tile * SIZE + column, mask=column < SIZE, other=0.0)
{_pick("c", "IN")}    tl.store(c + column, total.to(IN), mask=column < SIZE)
"""


@lru_cache(256)
def kernels(literal: str, m: int, n: int) -> tuple[Any, Any]:
    """Return the kernels `assemble` and `gradient` of a product, see `zoo.algebras.literal`; empty if it is learned."""
    known = {(i, j, k): repr(a) for i, j, k, a in entries(literal)[2]} if literal else {}
    if not literal:
        known = {(i, j, k): f"a{i}_{j}_{k}" for i in range(m) for j in range(n) for k in range(n)}
    options = m, n, known, not literal
    name = sha256(literal.encode()).hexdigest()[:16] if literal else f"{m}_{n}"
    return compiled(_assembly(*options), f"assemble_{name}"), compiled(_gradient(*options), f"gradient_{name}")


def compiled(text: str, name: str) -> Any:
    """Return a Triton function from its text, which Triton reads again by the name of a file that does not exist."""
    path = f"<zoo_gpu {name}>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    namespace: dict[str, Any] = {"triton": triton, "tl": tl, "__name__": __name__}
    exec(compile(text, path, "exec"), namespace)
    return namespace.popitem()[1]  # the last name that the text defines


sum_tiles = compiled(SUMS, "sum_tiles")
