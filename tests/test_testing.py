"""The contracts detect defects: every test fails for at least one, and valid plugins pass all tests."""

import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

import zoo
import zoo.nn.weight
import zoo.testing.algebra
from zoo import registry
from zoo.algebras import Algebra, Laws, algebra, factorize
from zoo.kernels import axis_layout, block, real_matrix
from zoo.kernels.assembly import action_of
from zoo.nn import Embedding, Linear
from zoo.nn.weight import Weight, draw_components
from zoo.testing import AlgebraContract, BackboneContract
from zoo.testing.backbone import installed_algebras

QUATERNION = Laws(unital=True, commutative=False, associative=True, alternative=True, normed=True)


class Sound(AlgebraContract):
    spec = "quaternion"
    laws = QUATERNION


class SoundLearned(AlgebraContract):
    spec = "phm-4"


def checks_of(contract):
    return {name for name in dir(contract) if name.startswith("test_")}


def failing(contract, *args, checks=None):
    """Run checks of a contract, all by default, and name those that fail."""
    names = set()
    for name in checks_of(contract) if checks is None else checks:
        torch.manual_seed(0)
        try:
            getattr(contract, name)(*args)
        except pytest.skip.Exception:
            continue
        except Exception:
            names.add(name)
    return names


def with_table(table, spec=""):
    """A contract for an algebra that claims to be the quaternions."""

    class Claim(Sound):
        def algebra(self):
            made = table if isinstance(table, Algebra) else Algebra(table)
            made.spec = spec
            return made

    return Claim()


def everywhere(monkeypatch, matrix):
    """Put a defect into the block kernel, wherever it is imported."""
    for module in (block, zoo.nn.weight, zoo.testing.algebra, zoo.kernels):
        monkeypatch.setattr(module, "real_matrix", matrix)
    one = lambda part, dtype: matrix(action_of(part), part.components, part.out, part.inp)  # noqa: E731
    monkeypatch.setattr(zoo.nn.weight, "assembled", one)
    return Sound()


def flipped_sign(monkeypatch):
    table = algebra("quaternion").structure.clone()
    i, j, k = table.nonzero()[-1]
    table[i, j, k] *= -1
    return with_table(table)


def element_major(monkeypatch):
    def forward(self, x, y):
        x, y = (t.unflatten(-1, (-1, self.n)) for t in (x, y))
        return torch.einsum("ijk,...ci,...cj->...ck", self.structure, x, y).flatten(-2)

    monkeypatch.setattr(Algebra, "forward", forward)
    return Sound()


def unit_that_is_none(monkeypatch):
    monkeypatch.setattr(zoo.testing.algebra, "unit", lambda a: torch.ones(a.shape[0]).to(a))
    return Sound()


def factors_of_another_table(monkeypatch):
    monkeypatch.setattr(zoo.testing.algebra, "factorize", lambda a: factorize(a.transpose(0, 1)))
    return Sound()


def weights_on_the_right(monkeypatch):
    return everywhere(monkeypatch, lambda a, w, out, inp: real_matrix(a.transpose(0, 1), w, out, inp))


def rule_without_gradient(monkeypatch):
    return everywhere(monkeypatch, lambda a, w, out, inp: real_matrix(a.detach(), w, out, inp))


def blocks_ignored(monkeypatch):
    monkeypatch.setattr(zoo.nn.weight, "axis_layout", lambda size, n, blocks=1, old=axis_layout: old(size, n))
    return Sound()


def cast_to_float(monkeypatch):
    monkeypatch.setattr(Linear, "forward", lambda self, x, old=Linear.forward: old(self.float(), x.float()))
    return Sound()


def one_weight_too_many(monkeypatch):
    def reset(self, old=Weight.reset_parameters):
        old(self)
        self.scale = nn.Parameter(torch.ones(()))

    monkeypatch.setattr(Weight, "reset_parameters", reset)
    return Sound()


def twice_the_variance(monkeypatch):
    def draw(*args, gain=1.0, **options):
        draw_components(*args, gain=gain * 2**0.5, **options)

    monkeypatch.setattr(zoo.nn.weight, "draw_components", draw)
    return Sound()


def seed_ignored(monkeypatch):
    def draw(components, *args, **options):
        with torch.random.fork_rng():
            torch.manual_seed(7)
            draw_components(components, *args, **options)

    monkeypatch.setattr(zoo.nn.weight, "draw_components", draw)
    return Sound()


def words_in_another_order(monkeypatch):
    def forward(self, index, old=Embedding.forward):
        return old(self, (index + 1) % self.num_embeddings)

    monkeypatch.setattr(Embedding, "forward", forward)
    return Sound()


def rule_not_saved(monkeypatch):
    monkeypatch.setattr(Algebra, "state_dict", lambda self, *args, destination=None, **options: destination)
    return SoundLearned()


def copy_of_nothing(monkeypatch):
    monkeypatch.setattr(Linear, "__deepcopy__", lambda self, memo: self, raising=False)
    return Sound()


def one_rule_for_all(monkeypatch):
    monkeypatch.setattr(Algebra, "for_layer", lambda self: self)
    return Sound()


def spec_of_a_table_that_was_changed(monkeypatch):
    return with_table(algebra("quaternion").structure * 2, "quaternion")


CONVOLUTIONS = {f"test_conv{axes}d_is_a_sum_of_linear_layers" for axes in (1, 2)} | {
    "test_a_group_takes_its_share_of_every_component"
}
COMMUTES = {"test_linear_commutes_with_right_multiplication"}
DECLARED = {"test_laws_are_as_declared"}
DEFECTS = {
    flipped_sign: DECLARED | COMMUTES,
    element_major: {"test_product_is_the_definition"},
    unit_that_is_none: {"test_laws_show_in_products"},
    factors_of_another_table: {"test_factors_rebuild_the_table"},
    weights_on_the_right: CONVOLUTIONS,
    rule_without_gradient: {"test_block_is_the_product"},
    blocks_ignored: {"test_linear_takes_any_size"},
    cast_to_float: {"test_linear_runs_in_every_precision"},
    one_weight_too_many: {"test_parameters_are_counted"},
    twice_the_variance: {"test_output_variance_is_one"},
    seed_ignored: {"test_the_seed_decides_the_draw"},
    words_in_another_order: {"test_embedding_reads_one_hot_vectors"},
    rule_not_saved: {"test_state_dict_restores_the_layer"},
    copy_of_nothing: {"test_a_copy_is_independent"},
    one_rule_for_all: {"test_layers_of_one_algebra_do_not_share_a_dtype"},
    spec_of_a_table_that_was_changed: {"test_the_spec_names_the_algebra"},
}


class Rotated(AlgebraContract):
    """Quaternions in a basis where nothing is zero or one, rounded to float32."""

    laws = QUATERNION

    def algebra(self):
        basis = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).Q
        table = algebra("quaternion").structure.double()
        return Algebra(torch.einsum("ai,bj,ck,ijk->abc", basis, basis, basis, table))


@pytest.mark.parametrize("contract", [Sound, SoundLearned, Rotated])
def test_valid_algebras_pass(contract):
    assert failing(contract()) == set()


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_defects_are_detected(defect, monkeypatch):
    contract = defect(monkeypatch)
    assert failing(contract, checks=DEFECTS[defect]) == DEFECTS[defect]


def test_every_algebra_test_can_fail():
    assert set().union(*DEFECTS.values()) == checks_of(AlgebraContract)


class Small(BackboneContract):
    spec = "vit(dim={dim}, heads=2, depth=1)"
    info = {"in_channels": 1, "image_size": 8, "num_classes": 5}  # noqa: RUF012
    algebras = ("quaternion",)


def changed(change):
    """A backbone that is a sound one with a defect."""

    class Changed(Small):
        def build(self, algebra, seed=0, n=None):
            return change(super().build(algebra, seed, n), self)

    return Changed()


class Wrapped(nn.Module):
    def __init__(self, net, change):
        super().__init__()
        self.net, self.change = net, change

    def forward(self, x):
        return self.change(self.net(x))


class Backwards(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


def extra_parameter(net, contract):
    net.forgotten = nn.Parameter(torch.ones(3))
    return net


def hidden_state(net, contract):
    scale = torch.rand(()) + 0.5
    return Wrapped(net, lambda y: y * scale)


def not_copied(net, contract):
    net.__class__ = type("Net", (type(net),), {"__deepcopy__": lambda self, memo: self})
    return net


def always_real(net, contract):
    return BackboneContract.build(contract, "real")


BACKBONE_DEFECTS = {
    "test_output_is_one_finite_row_per_example": lambda net, _: Wrapped(net, lambda y: y[:, 1:]),
    "test_every_parameter_gets_a_gradient": extra_parameter,
    "test_a_small_step_lowers_the_loss": lambda net, _: Wrapped(net, Backwards.apply),
    "test_matrices_have_one_nth_of_the_weights": always_real,
    "test_state_dict_restores_the_network": hidden_state,
    "test_examples_do_not_see_their_neighbours": lambda net, _: Wrapped(net, lambda y: y - y.mean(0)),
    "test_a_copy_is_independent": not_copied,
}


def cyclic(n=5):
    """Real numbers of the cyclic group of order n."""
    i, j = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    return Algebra(nn.functional.one_hot((i + j) % n, n).float())


@pytest.fixture
def five():
    """An algebra of dimension 5, as a third party may install it."""
    zoo.register("algebras", "five", cyclic)
    yield "five"
    registry.unregister("algebras", "five")


def test_valid_backbones_pass(five):
    for spec in ("quaternion", "real", "phm-4", five):
        assert failing(Small(), spec) == set()


def test_algebra_of_dimension_five_passes(five):
    assert five in installed_algebras()

    class Five(AlgebraContract):
        spec = five

    assert failing(Five()) == set()


@pytest.mark.parametrize("test", BACKBONE_DEFECTS)
def test_backbone_defects_are_detected(test):
    assert failing(changed(BACKBONE_DEFECTS[test]), "quaternion", checks=[test]) == {test}


def test_every_backbone_test_can_fail():
    assert BACKBONE_DEFECTS.keys() == checks_of(BackboneContract)


def test_pytest_runs_the_contracts(tmp_path):
    """A plugin author's file: ids name the algebra, and a failure shows what was compared."""
    (tmp_path / "test_plugin.py").write_text(
        textwrap.dedent("""
        from zoo.algebras import Laws
        from zoo.testing import AlgebraContract, BackboneContract
        class TestWrong(AlgebraContract):
            spec = "complex"
            laws = Laws(True, False, True, True, True)
        class TestTransformer(BackboneContract):
            spec = "vit(dim={dim}, heads=2, depth=1)"
            info = {"in_channels": 1, "image_size": 8, "num_classes": 5}
            algebras = ("complex", "phm-2")
        """)
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", "-v", "--rootdir", tmp_path, tmp_path]
    output = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False).stdout
    count = len(checks_of(AlgebraContract)) + 2 * len(checks_of(BackboneContract))
    assert f"1 failed, {count - 1} passed" in output
    assert "TestTransformer::test_every_parameter_gets_a_gradient[phm-2] PASSED" in output
    assert "assert Laws(unital=" in output  # pytest rewrites the contracts' assertions, too
