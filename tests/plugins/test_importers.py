"""Imported layers have the same outputs as in their libraries.

The expected outputs were computed with the libraries themselves: speechbrain 1.1.2 (PyPI), qytorch (dac555a of 2024-09-18),
Orkis Pytorch-Quaternion-Neural-Networks (28caa7c of 2019-12-05), HyperNets (c859ffe of 2022-12-14), phc-gnn (3dd0a00 of
2021-09-02) and HypercomplexKeras 1.0.3 (PyPI), on 2026-11-22 with torch 2.15 in double precision (HypercomplexKeras in single).
Parameter number p of a layer, in the order of the names, is sin(1.7 i + p) at index i, and the input is cos(0.9 i).
"""

import pytest
import torch
from safetensors.torch import save_file
from zoo_importers import hypercomplex
from zoo_importers.hypercomplex import LIBRARIES, import_layers, layer, layer_names

import zoo
from tests.errors import raises
from zoo.errors import InputError


def four(shape, bias):
    """Return the shapes of a quaternion layer's parameters."""
    return {f"{part}_weight": shape for part in "rijk"} | {"bias": [bias]}


# The algebra, the shape of the input, the shapes of the parameters, and the output: all of it, or its first and last eight
# numbers.
# fmt: off
LAYERS = {
    "qytorch QLinear": ("quaternion", (2, 8), four([1, 2], 4), [
        -3.2906273, 0.5912025, 0.0487192, -0.3592153, -2.446656, 0.4945077, -0.8125963, -2.8097889
    ]),
    "qytorch QConv2d": ("quaternion", (1, 4, 3, 3), four([2, 1, 2, 2], 8), [
        -5.6198629, -5.6996445, 3.8770235, 6.2860416, -2.6516793, -4.8078829, 2.356934, 6.2557638, 1.894962,
        -2.6448672, -4.9870071, -1.016833, 3.648381, 0.1894403, -5.4817466, -3.4021516
    ]),
    "qytorch QConv1d": ("quaternion", (1, 8, 3), four([1, 2, 2], 4), [
        -1.2739601, -0.3825043, -2.4820938, -3.1869105, -0.6898459, -1.9818644, 2.3546908, -1.4702427
    ]),
    "orkis QuaternionLinear": ("quaternion", (2, 8), four([2, 1], 4), [
        1.092399, 2.7317402, 1.0297011, -3.5543037, 1.7940849, 3.8472426, -0.1175911, -1.209818
    ]),
    "orkis QuaternionConv": ("quaternion", (1, 4, 3, 3), four([2, 1, 2, 2], 8), [
        1.2243324, 3.262629, 0.2579622, -2.5111293, 1.1284156, 3.8923167, 2.4042369, -0.7215948, -6.5311194,
        -3.1151387, 5.231887, 3.8460694, -6.5648866, -4.9860821, 4.3918478, 5.0939429
    ]),
    "hypernets PHMLinear": (None, (2, 6), {"bias": [4], "a": [2, 2, 2], "s": [2, 2, 3]}, [
        0.3128696, -0.665676, -0.7766525, 0.8486089, 1.4682537, -0.0490911, -1.7358471, 0.0126765
    ]),
    "hypernets PHConv2d": (None, (1, 4, 3, 3), {"bias": [6], "A": [2, 2, 2], "F": [2, 3, 2, 2, 2]}, [
        -1.4619126, 0.1161672, 1.8808592, 0.7319877, -1.4343457, -1.4906599, 0.9699094, 1.6246831, 1.6193481,
        1.5414543, -1.1721948, -1.7543146, 0.1863228, 1.881275, 0.7947756, -1.164435
    ]),
    "hypernets PHConv1D": (None, (1, 4, 3), {"bias": [6], "A": [2, 2, 2], "F": [2, 3, 2, 2]}, [
        -0.0210588, 1.9793851, -1.7659607, 0.2610672, -3.0495848, -1.5254427, -0.5583939, -2.4078572, 1.3904972,
        -0.7884229, 2.9761834, 1.0369515
    ]),
    "phc_gnn PHMLinear": (None, (2, 6), {"phm_rule": [2, 2, 2], "W": [2, 3, 2], "b": [4]}, [
        0.505871, 0.5406459, -0.7000081, 0.0473743, 0.8557413, 0.660752, -0.7407494, -0.3616208
    ]),
    "speechbrain QLinear": ("quaternion", (2, 8), four([2, 1], 4), [
        1.092399, 2.7317402, 1.0297011, -3.5543037, 1.7940849, 3.8472426, -0.1175911, -1.209818
    ]),
    "speechbrain CLinear": ("complex", (2, 6), {"real_weight": [3, 2], "imag_weight": [3, 2], "b": [4]}, [
        0.413927, 1.3220168, -0.4848521, -0.5838572, 0.3861023, 0.7203719, -0.102936, -0.6353443
    ]),
    "speechbrain QConv2d": ("quaternion", (1, 4, 3, 3), four([2, 1, 3, 3], 8), [
        0.6265697, 0.45559, 1.6397414, -3.1503698, 1.0359339, 0.355749, -2.1309851, 0.0218339
    ]),
    "speechbrain QConv1d": ("quaternion", (1, 8, 4), four([1, 2, 3], 4), [
        -6.5313433, -5.6704693, 0.8305061, 0.053439, -2.21968, 3.5369893, -1.6473668, -2.187192
    ]),
    "speechbrain CConv1d": ("complex", (1, 4, 4), {"real_weight": [2, 2, 3], "imag_weight": [2, 2, 3], "b": [4]}, [
        -2.4616257, -0.3648732, 3.8056144, 3.2379858, 1.7171998, 3.109514, -0.0698465, -2.8454266
    ]),
    "hypercomplex_keras HyperDenseTorch, quaternions": ("quaternion", (2, 8), {"kernel": [4, 2, 1], "bias": [4]}, [
        1.8999002, -0.4003096, -0.860921, -1.7907213, 0.4053306, -1.2405059, -1.176934, -1.4159372
    ]),
    "hypercomplex_keras HyperDenseTorch, octonions": ("octonion", (2, 8), {"kernel": [8, 1, 1], "bias": [8]}, [
        1.368573, 0.2141783, -1.4210474, -3.9093235, -0.0178371, 1.6737185, -2.4785061, 0.1809806, 0.6135023,
        -1.1753271, -2.576441, -1.2623949, -0.4638848, 1.9225454, -2.0680943, 0.0317871
    ]),
}
QLSTM_OUTPUT = [
    0.4365204, -0.4539866, 0.0035266, 0.0935604, 0.4977486, -0.6505931, -0.0320674, 0.0431613, 0.3438121, -0.6042925,
    -0.1013521, 0.0201608
]
# fmt: on


def filled(shapes, skipped=0):
    """Return the state dict that the library had; ``skipped`` names come before all others."""
    state = {}
    for number, name in enumerate(sorted(shapes), skipped):
        indices = torch.arange(torch.Size(shapes[name]).numel(), dtype=torch.float64)
        state[name] = torch.sin(1.7 * indices + number).view(shapes[name])
    return state


def inputs(shape):
    return torch.cos(0.9 * torch.arange(torch.Size(shape).numel(), dtype=torch.float64)).view(shape)


def close(y, expected):
    y = y.flatten()
    y = y if len(y) == len(expected) else torch.cat([y[:8], y[-8:]])
    torch.testing.assert_close(y.detach(), torch.tensor(expected, dtype=y.dtype), atol=1e-6, rtol=0)


@pytest.mark.parametrize("case", LAYERS)
def test_outputs_equal_the_library(case):
    algebra, shape, shapes, expected = LAYERS[case]
    library, state, x = case.split()[0], filled(shapes), inputs(shape)
    close(layer(library, state, algebra)(x), expected)
    nested = {f"encoder.0.{key}": value for key, value in state.items()} | {"head.weight": torch.ones(2, 2)}
    assert layer_names(library, nested) == ["encoder.0"]
    assert layer_names(library, state) == [""]
    close(layer(library, nested, algebra, name="encoder.0")(x), expected)
    # The formats of other libraries, with other signs, sides or orders of axes, give other outputs.
    for other in [other for other in LIBRARIES if not {*LIBRARIES[other]} & {*LIBRARIES[library]}]:
        try:
            y = layer(other, state, algebra)(x)
        except (InputError, RuntimeError):
            continue
        assert y.flatten()[:8].sub(torch.tensor(expected[:8])).abs().max() > 1e-3


@pytest.mark.parametrize(("library", "algebra"), [("hypernets", "phm-2"), ("phc_gnn", "phm(n=2)")])
def test_learned_products_are_imported(library, algebra):
    _, shape, shapes, expected = LAYERS[f"{library} PHMLinear"]
    imported = layer(library, filled(shapes), algebra)
    y = imported(inputs(shape))
    close(y, expected)
    assert imported.algebra.spec == zoo.algebra(algebra).spec
    y.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in imported.parameters())


@pytest.mark.parametrize("case", ["qytorch QLinear", "hypernets PHMLinear", "hypernets PHConv2d", "phc_gnn PHMLinear"])
def test_state_dicts_are_imported(case):
    algebra, shape, shapes, expected = LAYERS[case]
    library = case.split()[0]
    theirs = {f"0.{key}": value for key, value in filled(shapes).items()} | {"1.weight": torch.ones(2, dtype=torch.float64)}
    imported = import_layers(library, theirs, algebra=algebra)
    first = layer(library, theirs, algebra, name="0")
    torch.nn.init.zeros_(first.components)
    net = torch.nn.ModuleList([first, torch.nn.PReLU(2).double()])
    net.load_state_dict(imported.state)  # strict: no name is missing or unexpected
    close(net[0](inputs(shape)), expected)
    assert torch.equal(net[1].weight, theirs["1.weight"])
    assert ([row["layer"] for row in imported.layers], imported.kept) == (["0"], ["1.weight"])


def test_convolution_options():
    state, x = filled(LAYERS["qytorch QConv2d"][2]), inputs((1, 4, 5, 5))
    full = layer("qytorch", state, "quaternion", padding=1)(x)
    torch.testing.assert_close(layer("qytorch", state, "quaternion", padding=1, stride=2)(x), full[..., ::2, ::2])


def test_gates_of_speechbrain_are_components():
    shapes = {f"rnn.0.{part}.{key}": shape for part, rows in (("w", 2), ("u", 1)) for key, shape in four([rows, 4], 16).items()}
    state, x = filled(shapes, skipped=1), inputs((1, 3, 8))
    y, _ = hypercomplex.lstm(state, "quaternion")(x)
    close(y, QLSTM_OUTPUT)
    swapped = state | {"rnn.0.w.i_weight": state["rnn.0.w.j_weight"], "rnn.0.w.j_weight": state["rnn.0.w.i_weight"]}
    assert (hypercomplex.lstm(swapped, "quaternion")(x)[0] - y).abs().max() > 1e-3
    with raises("mismatch", "rnn.0"):
        hypercomplex.lstm(state | {f"rnn.0.u.{k}_weight": torch.ones(2, 4) for k in "rijk"}, "quaternion")


def test_files(tmp_path):
    state = {name: value.float() for name, value in filled(LAYERS["speechbrain QLinear"][2]).items()}
    save_file(state, tmp_path / "a.safetensors")
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "nested.ckpt")
    for name in ("a.safetensors", "nested.ckpt"):
        read = hypercomplex.read_state(tmp_path / name)
        assert {*read} == {*state}
        assert all(torch.equal(read[key], value) for key, value in state.items())
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pt")
    torch.save({"epoch": 3}, tmp_path / "none.pt")
    (tmp_path / "text.safetensors").write_text("no")
    codes = {"module.pt": "corrupt", "none.pt": "missing", "text.safetensors": "corrupt", "absent.pt": "missing"}
    for name, code in codes.items():
        with raises(code, name):
            hypercomplex.read_state(tmp_path / name)


@pytest.mark.parametrize(
    ("library", "algebra", "change", "code", "value"),
    [
        ("nobody", "quaternion", {}, "unknown", "'nobody'"),
        ("qytorch", None, {}, "missing", "qytorch"),
        ("qytorch", "octonion", {}, "mismatch", "n = 8"),
        ("qytorch", "clifford(p=2, q=0)", {}, "mismatch", "clifford(p=2, q=0)"),
        ("qytorch", "quaternion", {"i_weight": torch.ones(2, 2)}, "mismatch", "[2, 2]"),
        ("hypernets", "complex", filled(LAYERS["hypernets PHMLinear"][2]), "mismatch", "complex"),
        ("hypercomplex_keras", "quaternion", {"kernel": torch.ones(4, 2, 1)}, "unsupported", "hypercomplex_keras"),
    ],
)
def test_incompatible_layers(library, algebra, change, code, value):
    with raises(code, value):
        import_layers(library, filled(four([1, 2], 4)) | change, algebra=algebra)
