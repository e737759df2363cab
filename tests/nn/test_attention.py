"""Attention against torch's attention, and every score against a reference implementation."""

from math import sqrt

import pytest
import torch
from torch import nn

from tests.errors import raises
from zoo.algebras import algebra, reals
from zoo.nn import scores
from zoo.nn.attention import Attention
from zoo.nn.embedding import apply_rotation, rotation
from zoo.nn.scores import SCORES, arrange
from zoo.testing import definition
from zoo.testing.backbone import installed_algebras

SPECS = installed_algebras()
every_score = pytest.mark.parametrize("score", SCORES)
every_algebra = pytest.mark.parametrize("spec", SPECS)


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def attend(q, k, v, structure, score, *options, **keywords):
    return scores.attend(q, k if score == "dot" else arrange(k, structure, score), v, score, *options, **keywords)


def make(spec="quaternion", dim=16, heads=2, seed=0, **options):
    torch.manual_seed(seed)
    layer = Attention(dim, heads, algebra=algebra(spec), **options).double()
    for name, parameter in layer.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return layer


def heads_of(layer, x, context=None):
    """Return the queries, keys and values of a layer, [B, H, L, dim / H] each."""
    parts = layer.qkv(x).chunk(3, -1) if context is None else (layer.q(x), *layer.kv(context).chunk(2, -1))
    return [part.unflatten(-1, (layer.heads, -1)).transpose(1, 2) for part in parts]


def reference(q, k, v, structure, score, mask=None, causal=False, scale=None):
    """Attend one head, one query and one pair of elements at a time; the queries are the last tokens."""
    n, width = structure.shape[0], q.shape[-1]
    scale = 1 / sqrt(width) if scale is None else scale
    sign = torch.tensor([1.0] + [-1.0] * (n - 1), dtype=q.dtype)
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=q.dtype)
    rows = []
    for b, h, p in ((b, h, p) for b in range(q.shape[0]) for h in range(q.shape[1]) for p in range(q.shape[2])):
        visible = [
            m for m in range(k.shape[2]) if (mask is None or mask[b, m]) and (m <= p + k.shape[2] - q.shape[2] or not causal)
        ]
        if not visible:
            rows.append(y[b, h, p])
            continue
        queries, values = q[b, h, p].view(n, -1), v[b, h, visible].unflatten(-1, (n, -1))
        keys = k[b, h, visible].unflatten(-1, (n, -1))
        keys = keys * sign[:, None] if score == "hermitian" else keys
        e = sum(definition.multiply(structure, queries[:, c], keys[..., c]) for c in range(width // n))
        if score == "dot":
            e = (queries * keys).sum((-2, -1))[:, None].expand(-1, n)
        elif score == "hermitian":
            e = e.square().sum(-1, keepdim=True).sqrt().expand(-1, n)
        rows.append(((scale * e).softmax(0)[..., None] * values).sum(0).flatten())
    return torch.stack(rows).view(y.shape)


@every_algebra
@every_score
@pytest.mark.parametrize(("masked", "causal"), [(False, False), (True, False), (False, True), (True, True)])
def test_every_score_is_its_definition(spec, score, masked, causal):
    structure = algebra(spec).structure.detach().double()
    width = 2 * structure.shape[0]
    q, k, v = (draw(2, 2, size, width, seed=seed) for seed, size in enumerate((4, 5, 5)))
    mask = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0]]).bool() if masked else None
    results = []
    for f in (attend, reference):
        inputs = [t.clone().requires_grad_() for t in (q, k, v, structure)]
        y = f(*inputs, score, mask, causal)
        read = inputs[:3] if score == "dot" else inputs
        results.append((y, *torch.autograd.grad(y.pow(3).sum(), read)))
    torch.testing.assert_close(*results)


@every_score
def test_scale_and_value_width(score):
    structure = algebra("quaternion").structure.double()
    q, k = draw(1, 2, 3, 8), draw(1, 2, 4, 8, seed=1)
    for width in (4, 8, 40):
        v = draw(1, 2, 4, width, seed=2)
        y = attend(q, k, v, structure, score, scale=0.7)
        torch.testing.assert_close(y, reference(q, k, v, structure, score, scale=0.7))


def test_hermitian_gradient_at_zero_is_finite():
    q, k, v = (torch.zeros(1, 1, 3, 8, requires_grad=True) for _ in range(3))
    attend(q, k, v, algebra("quaternion").structure, "hermitian").sum().backward()
    assert all(t.grad.isfinite().all() for t in (q, k, v))


@every_score
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_query_without_visible_keys_is_zero_with_finite_gradients(score, dtype, causal):
    structure = algebra("quaternion").structure.to(dtype)
    q, k, v = (draw(2, 2, 6, 8, seed=seed).to(dtype).requires_grad_() for seed in range(3))
    mask = torch.tensor([[False] * 6, [False, False, True, True, False, True]])
    y = attend(q, k, v, structure, score, mask, causal)
    assert not y[0].any()
    assert not y[1, :, :2].any() if causal else y[1].all()
    y.square().sum().backward()
    for t in (q, k, v):
        assert t.grad.isfinite().all()
        assert not t.grad[0].any()


@every_score
@pytest.mark.parametrize("masked", [False, True])
def test_no_quadratic_tensor_is_saved_for_backward(score, masked):
    size, saved = 96, []
    structure = algebra("quaternion").structure
    q, k, v = (draw(1, 1, size, 8, seed=seed).float().requires_grad_() for seed in range(3))
    mask = torch.arange(size)[None] < 90 if masked else None

    def save(t):
        saved.append(t.untyped_storage().nbytes() // t.element_size())
        return t

    with torch.autograd.graph.saved_tensors_hooks(save, lambda t: t):
        attend(q, k, v, structure, score, mask, causal=not masked)
        assert max(saved) < size * size
        scores._attend_by_definition(q, arrange(k, structure, "product"), v, "product", mask, not masked, 0.0, 1.0)
        assert max(saved) >= size * size


# --- hermitian attention in tiles ---


@pytest.fixture
def small_tiles(monkeypatch):
    monkeypatch.setattr("zoo.nn.scores.CPU_TILE", 100)


def hermitian(q, k, v, **options):
    return attend(q, k, v, algebra("quaternion").structure.to(q), "hermitian", **options)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("causal", "keys"), [(False, 70), (True, 70), (True, 77), (True, 20)])
def test_tiled_attention_equals_the_definition(masked, causal, keys):
    q, k, v = (draw(2, 3, size, 8, seed=seed).requires_grad_() for seed, size in enumerate((70, keys, keys)))
    mask = (torch.arange(keys) >= torch.tensor([[3], [keys - 10]])) if masked else None
    results = []
    for f in (attend, written_out):
        y = f(q, k, v, algebra("quaternion").structure.double(), "hermitian", mask, causal)
        results.append((y, *torch.autograd.grad(y.pow(3).sum(), (q, k, v))))
    torch.testing.assert_close(*results)


def written_out(q, k, v, structure, score, mask=None, causal=False):
    return scores._attend_by_definition(q, arrange(k, structure, score), v, score, mask, causal, 0.0, q.shape[-1] ** -0.5)


@pytest.mark.usefixtures("small_tiles")
def test_dropout_is_the_same_in_forward_and_backward():
    inputs = [draw(1, 2, size, 8, seed=seed).requires_grad_() for seed, size in enumerate((40, 6, 6))]

    def call(*inputs, seed=5):
        torch.manual_seed(seed)
        return hermitian(*inputs, dropout=0.4)

    assert torch.equal(call(*inputs), call(*inputs))
    assert not torch.equal(call(*inputs), call(*inputs, seed=6))
    assert torch.autograd.gradcheck(call, inputs, fast_mode=True)
    ones = torch.ones(1, 400, 6, 4)
    weight = hermitian(draw(1, 400, 40, 8).float(), draw(1, 400, 6, 8).float(), ones, dropout=0.4)
    assert abs(weight.mean().item() - 1) < 0.01
    assert ((weight == 0).float().mean().item() - 0.4**6) < 0.002


def test_compiled_and_transformed_calls():
    q, k, v = (draw(2, 2, 6, 8, seed=seed) for seed in range(3))
    expected = hermitian(q, k, v, causal=True)
    compiled = torch.compile(attend, fullgraph=True, backend="eager")
    structure = algebra("quaternion").structure.double()
    torch.testing.assert_close(compiled(q, k, v, structure, "hermitian", causal=True), expected)
    rows = torch.func.vmap(lambda *t: hermitian(*(x[None] for x in t), causal=True)[0])
    torch.testing.assert_close(rows(q, k, v), expected)
    gradient = torch.func.grad(lambda q: hermitian(q, k, v, causal=True).sum())(q)
    torch.testing.assert_close(gradient, torch.autograd.functional.vjp(lambda q: hermitian(q, k, v, causal=True).sum(), q)[1])


def copy_torch_weights(ours, theirs):
    """Copy the weights of torch's attention over the reals."""
    with torch.no_grad():
        matrices, biases = theirs.in_proj_weight, theirs.in_proj_bias
        if ours.cross:
            ours.q.components.copy_(matrices[: ours.dim])
            ours.q.bias.copy_(biases[: ours.dim])
            matrices, biases = matrices[ours.dim :], biases[ours.dim :]
        fused = ours.kv if ours.cross else ours.qkv
        fused.components.copy_(matrices)
        fused.bias.copy_(biases)
        ours.proj.components.copy_(theirs.out_proj.weight)
        ours.proj.bias.copy_(theirs.out_proj.bias)


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("score", ["dot", "product"])
def test_equals_torch_over_the_reals(cross, score):
    theirs = nn.MultiheadAttention(12, 3, batch_first=True).double()
    nn.init.normal_(theirs.in_proj_bias)
    nn.init.normal_(theirs.out_proj.bias)
    ours = Attention(12, 3, algebra=reals(), cross=cross, score=score).double()
    copy_torch_weights(ours, theirs)
    x = draw(2, 4, 12)
    context = draw(2, 5, 12, seed=1) if cross else None
    keys = x if context is None else context
    mask = torch.tensor([[1, 1, 0, 1, 1], [1, 0, 0, 0, 1]]).bool()[:, : keys.shape[1]]
    for m in (None, mask):
        expected, _ = theirs(x, keys, keys, key_padding_mask=None if m is None else ~m)
        y = ours(x, context, m)
        torch.testing.assert_close(y, expected)
        (actual,) = torch.autograd.grad(y.pow(3).sum(), ours.proj.components)
        (other,) = torch.autograd.grad(expected.pow(3).sum(), theirs.out_proj.weight)
        torch.testing.assert_close(actual, other)


@every_algebra
@every_score
@pytest.mark.parametrize("cross", [False, True])
def test_each_head_equals_a_single_head_layer(spec, score, cross):
    # Each head has its own rows of the matrix and attends independently.
    n = algebra(spec).n
    size = 2 * n
    layer = make(spec, 3 * size, 3, score=score, cross=cross)
    x, context = draw(2, 4, 3 * size), draw(2, 5, 3 * size, seed=1)
    q, k, v = heads_of(layer, x, context if cross else None)
    for head in range(3):
        for index, (heads, source) in enumerate(((q, x), (k, context), (v, context))):
            fused = (layer.q if index == 0 else layer.kv) if cross else layer.qkv
            row = (max(index - cross, 0) * 3 + head) * size
            expected = (source if cross else x) @ fused.weight[row : row + size].T + fused.bias[row : row + size]
            torch.testing.assert_close(heads[:, head], expected)
            assert fused.out.blocks == (3 if fused is getattr(layer, "q", None) else 6 if cross else 9)
    structure = None if score == "dot" else layer.product.structure
    y = torch.cat([attend(q[:, [h]], k[:, [h]], v[:, [h]], structure, score)[:, 0] for h in range(3)], -1)
    torch.testing.assert_close(layer(x, context if cross else None), layer.proj(y))


@pytest.mark.parametrize("score", ["dot", "hermitian"])
@pytest.mark.parametrize(("spec", "rotary"), [("complex", True), ("quaternion", False)])
def test_commutes_with_right_multiplication_by_units_of_normed_associative_algebras(spec, score, rotary):
    # Neither q . k nor |q conj(k)| changes if x is multiplied by u from the right, with |u| = 1.
    layer, product = make(spec, score=score, rotary=rotary, bias=False), algebra(spec).double()
    x, u = draw(2, 4, 16), draw(product.n, 1, seed=1)
    u = (u / u.norm()).expand(product.n, 16 // product.n).flatten()
    torch.testing.assert_close(layer(product(x, u)), product(layer(x), u))


@every_score
@pytest.mark.parametrize(("spec", "rotary"), [("real", False), ("quaternion", True)])
def test_padding_does_not_change_the_output(score, rotary, spec):
    layer, x = make(spec, score=score, rotary=rotary), draw(2, 4, 16)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
    y = layer(x, mask=mask)
    changed = x.masked_fill(~mask[..., None], 7.0)
    torch.testing.assert_close(layer(changed, mask=mask)[mask], y[mask])
    longer, mask = torch.cat([x, draw(2, 3, 16, seed=1)], 1), torch.cat([mask, torch.zeros(2, 3).bool()], 1)
    torch.testing.assert_close(layer(longer, mask=mask)[:, :4], y)
    torch.testing.assert_close(layer(x[1:, :2]), y[1:, :2])


@every_score
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("rotary", [False, True])
def test_causal_outputs_do_not_depend_on_later_tokens(score, masked, rotary):
    layer, x = make(score=score, rotary=rotary), draw(2, 6, 16)
    mask = torch.tensor([[1, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]]).bool() if masked else None
    changed = torch.cat([x[:, :3], draw(2, 3, 16, seed=1)], 1)
    y, z = layer(x, mask=mask, causal=True), layer(changed, mask=mask, causal=True)
    torch.testing.assert_close(y[:, :3], z[:, :3])
    assert not torch.isclose(y[:, 3:], z[:, 3:]).all(-1).any()


@pytest.mark.parametrize("spec", ["real", "quaternion"])
def test_rotary_positions_encode_distances(spec):
    x, order = draw(1, 4, 16), [2, 0, 3, 1]
    without, with_rotary = make(spec), make(spec, rotary=True)
    torch.testing.assert_close(without(x[:, order]), without(x)[:, order])
    assert not torch.isclose(with_rotary(x[:, order]), with_rotary(x)[:, order]).all(-1).any()
    # Only distances matter: masked tokens before a sequence do not change its output.
    shifted, mask = torch.cat([draw(1, 3, 16, seed=1), x], 1), torch.arange(7)[None] >= 3
    torch.testing.assert_close(with_rotary(shifted, mask=mask)[:, 3:], with_rotary(x))


@every_score
def test_dropout_only_in_training(score):
    layer, exact, x = make(score=score, dropout=0.5), make(score=score), draw(2, 4, 16)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), exact(x))


@every_score
@pytest.mark.parametrize("masked", [False, True])
def test_precisions_agree(score, masked):
    layer, x = make(score=score, rotary=True), draw(2, 4, 16)
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]).bool() if masked else None
    exact = layer(x, mask=mask)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 5e-2)):
        y = layer.to(dtype)(x.to(dtype), mask=mask)
        assert y.dtype == dtype
        assert (y.double() - exact).norm() < tolerance * exact.norm()
    with torch.autocast("cpu", torch.bfloat16):
        y = make(score=score, rotary=True).float()(x.float(), mask=mask)
    assert y.dtype == torch.bfloat16
    assert (y.double() - exact).norm() < 5e-2 * exact.norm()


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"dim": 12}, "use dim=16"),
        ({"spec": "real", "dim": 9}, "use dim=10"),
        ({"heads": 0}, "heads=0"),
        ({"dim": 8, "rotary": True}, "use dim=16"),
        ({"head_dim": 6}, "use head_dim=8"),
    ],
)
def test_invalid_options(options, value):
    with raises("invalid", value):
        make(**options)


def test_invalid_calls():
    x = draw(2, 4, 16)
    for layer, inputs, value in ((make(cross=True), (x,), "context"), (make(), (x, x), "cross=True")):
        with raises("invalid", value):
            layer(*inputs)
    with raises("unknown", "'cosine'"):
        make(score="cosine")


def rotate(x, n, *positions):
    return apply_rotation(x, n, *rotation(x, n, *positions))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cached_rotary_tables(dtype):
    x, positions = draw(2, 2, 70, 24).to(dtype), torch.arange(70)
    expected = torch.cat([rotate(x[:, :, [p]], 4, positions[p, None]) for p in positions], 2)
    with torch.inference_mode():  # what is kept must not be an inference tensor: it is differentiated through below
        assert torch.equal(rotate(x, 4, positions, 70), expected)
    for rotated in (rotate(x, 4), rotate(x, 4, positions), rotate(x, 4, positions.expand(2, -1), 200)):
        assert torch.equal(rotated, expected)
    x.requires_grad_()
    rotate(x, 4, positions, 70).sum().backward()
    assert x.grad.isfinite().all()
    assert rotate(x.to("meta"), 4).is_meta
    assert torch.equal(rotate(x, 4), expected)


def test_heads_of_any_width():
    layer = Attention(20, 3, algebra=algebra("quaternion"), head_dim=8)
    assert layer(torch.randn(2, 5, 20)).shape == (2, 5, 20)
    assert layer.proj.in_features == 24
