"""Weight decay applies to matrices, and not to learned products, positions, class tokens, and u and v of Transformer-XL."""

import pytest
import torch

import zoo
from zoo.layers.weight import Weight
from zoo.tasks.optimization import make_optimizer, undecayed

TOKENS = {"vocab_size": 20, "max_length": 8}
IMAGE = {"in_channels": 1, "image_size": 8, "num_classes": 3}
NETWORKS = {
    "phm": ("lstm(dim=8, hidden=8)", "phm-4", TOKENS | {"num_classes": 3}, "algebra.structure"),
    "phm, shared": ("fasttext(dim=8, hidden=8)", "phm(n=4,shared=true)", TOKENS | {"num_classes": 3}, "algebra.structure"),
    "phm, rank": ("gpt(dim=32, depth=1, heads=2, ffn=32)", "phm(n=4, rank=6)", TOKENS, "algebra.factor_matrices"),
    "u": ("transformer_xl(dim=32, depth=1, heads=2, ffn=32)", "quaternion", TOKENS, "attention.u"),
    "class token": ("vit(dim=32, depth=1)", "quaternion", IMAGE, "cls_token"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_without_gradients_shrinks_only_matrices(name):
    torch.manual_seed(0)
    spec, algebra, info, undecayed_name = NETWORKS[name]
    net = zoo.backbone(spec, algebra, **info)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter)
        parameter.grad = torch.zeros_like(parameter)
    before = {key: parameter.clone() for key, parameter in net.named_parameters()}
    make_optimizer(net, "adamw", lr=0.1, weight_decay=0.5).step()
    untouched = {key for key, parameter in net.named_parameters() if torch.equal(parameter, before[key])}
    assert any(key.endswith(undecayed_name) for key in untouched)
    matrices = {f"{key}.components" for key, module in net.named_modules() if isinstance(module, Weight)}
    assert matrices
    assert not untouched & matrices
    vectors = {key for key, parameter in net.named_parameters() if parameter.ndim < 2}
    assert untouched == vectors | undecayed(net)
    for key in before.keys() - untouched:
        torch.testing.assert_close(dict(net.named_parameters())[key], 0.95 * before[key])
