"""The code in plugins/README.md works: it is extracted, installed as a distribution and used."""

import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from zoo import registry
from zoo.algebras import algebra
from zoo.backbones import Recipe, recipe_of
from zoo.backbones.build import backbone
from zoo.cli import main
from zoo.data import ready

PAGE = (Path(__file__).parents[2] / "plugins" / "README.md").read_text(encoding="utf-8")
BLOCKS = [code for _, code in re.findall(r"^```(toml|python)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]
(
    PYPROJECT,
    CYCLIC,
    CYCLIC_CONTRACT,
    PERCEPTRON,
    PERCEPTRON_CONTRACT,
    BAG,
    BAG_CONTRACT,
    NARROW,
    BARS,
    MIRRORS,
    FOCAL,
    FOCAL_CONTRACT,
) = BLOCKS[:12]
COMMAND = BLOCKS[13]
MORE = {"perceptron": PERCEPTRON, "bag": BAG, "narrow": NARROW, "bars": BARS, "mirrors": MIRRORS, "focal_classification": FOCAL}
GROUPS = {"zoo.backbones": ("perceptron", "bag"), "zoo.embeddings": ("narrow",), "zoo.datasets": ("bars", "mirrors")}


def defined(code):
    names = {"__name__": "plugins_readme"}
    exec(code, names)
    return names


class TestCyclic(defined(CYCLIC_CONTRACT)["TestCyclic"]):
    pass


class TestFocalClassification(defined(FOCAL_CONTRACT)["TestFocalClassification"]):
    pass


class TestPerceptron(defined(PERCEPTRON_CONTRACT)["TestPerceptron"]):
    algebras = ("quaternion", "phm-4", "cyclic(n=3)")


class TestBag(defined(BAG_CONTRACT)["TestBag"]):
    algebras = ("real", "quaternion", "phm-4", "cyclic(n=3)")


def install(site, name, version, points, **modules):
    """Install modules with their metadata into a folder, as pip does."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    lines = [line for group, names in points.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in names.items()))]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for module, code in modules.items():
        (site / f"{module}.py").write_text(code, encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    site, before = tmp_path_factory.mktemp("site"), set(sys.modules)
    project = tomllib.loads(PYPROJECT)["project"]
    install(site, project["name"], project["version"], project["entry-points"], zoo_cyclic=CYCLIC)
    points = {group: {name: f"zoo_{name}:{name}" for name in names} for group, names in GROUPS.items()}
    points["zoo.tasks"] = {"focal_classification": "zoo_focal_classification:FocalClassification"}
    points["zoo.commands"] = {"size": "zoo_size:size"}
    install(site, "zoo-more", "2.0", points, zoo_size=COMMAND, **{f"zoo_{name}": code for name, code in MORE.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOO_PLUGINS", "zoo-cyclic,zoo-more,zoo-rival")  # and no plugin of somebody else
        patch.syspath_prepend(str(site))
        registry.refresh()
        yield
    for name in set(sys.modules) - before:
        if str(site) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    registry.refresh()


def test_product_equals_circular_convolution():
    x, y = torch.randn(2, 5, dtype=torch.float64)
    expected = np.fft.ifft(np.fft.fft(x.numpy()) * np.fft.fft(y.numpy())).real
    torch.testing.assert_close(algebra("cyclic(n=5)").double()(x, y), torch.from_numpy(expected))
    assert algebra("cyclic-5").n == 5


def test_plugin_command(capsys):
    assert main(["--help"]) == 0
    assert (
        "  size        Print the number of weights of a trained model: zoo size runs/NAME [zoo-more 2.0]\n"
        in capsys.readouterr().out
    )
    assert main(["size", "vit-digits-quaternion"]) == 0
    assert int(capsys.readouterr().out.replace(",", "")) > 1000


def test_backbone_with_data_set():
    data = ready(registry.create("zoo.datasets", "bars(count=40)", batch_size=7, num_workers=0, seed=3))
    assert data.info.classes == ("horizontal", "vertical")
    info = data.info.to_dict() | {"num_classes": data.info.num_classes}
    images, labels = next(iter(data.train_dataloader()))
    assert images.shape == (7, 1, 8, 8)
    for image, label in zip(images[:, 0], labels, strict=True):
        brightest = image.sum(dim=0).max() > image.sum(dim=1).max()  # of a column, above that of any row
        assert brightest == bool(label)
    net = backbone("perceptron(dim=20)", "cyclic(n=4)", **info)
    assert net(images).shape == (7, 2)
    assert net[3].components.shape == (4, 5, 5)
    assert net[1].components.shape == (20, 64)
    entry, _ = registry.resolve("zoo.backbones", "perceptron")
    assert recipe_of(registry.load(entry)) == Recipe(data="digits", max_epochs=10, lr=3e-3, inputs=("image",))


def test_text_network_with_embedding_and_data_set():
    data = ready(registry.create("zoo.datasets", "mirrors(rows=60)", batch_size=8, num_workers=0, seed=3))
    assert data.info.sizes == {"train": 49, "val": 5, "test": 6}
    assert not data.has_split
    assert data.info.vocab_size == 10
    for text, label in zip(data.splits["train"].texts[0], data.splits["train"].labels, strict=True):
        assert text == (text[::-1] if label == "mirrored" else text[:4] * 2)
    net = backbone("bag(dim=20)", "cyclic(n=4)", embedding="narrow(width=5)", **data.info.model_kwargs)
    tokens, labels = next(iter(data.train_dataloader()))
    assert net(tokens).shape == (len(labels), 2)
    words = net.encoder.embedding
    assert words.table.weight.shape == (10, 5)
    padded = torch.nn.functional.pad(tokens, (0, 3))
    assert not words(padded)[:, -3:].any()
    torch.testing.assert_close(net.eval()(padded), net(tokens))
