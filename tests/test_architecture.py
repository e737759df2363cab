"""Architecture: layers of imports, names in core code, size of the code, and content of files.

The checks read source text and import nothing of the zoo. Each check is a function from sources to violations, and is also
tested on invalid sources.
"""

import ast
import re
import subprocess
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from benchmarks import code_size

ROOT = Path(__file__).parents[1]

# From bottom to top: a package imports only packages in lower layers. Add new packages here.
LAYERS = (
    {"errors", "atomic"},
    {"registry"},
    {"data"},
    {"algebras"},
    {"kernels"},
    {"nn"},
    {"conversion"},
    {"backbones", "pruning"},
    {"tasks"},
    {"checkpoint"},
    {"hub"},
    {"inference", "reports", "peft", "transformers"},
    {"training"},
    {"cli"},
    {"__init__", "__main__", "testing"},
)
NODES = {
    "plugins": 40,
    "plugins/example_dual_numbers": 260,
    "plugins/example_multilabel": 1_480,
    "plugins/zoo_algebras": 3_370,
    "plugins/zoo_datasets": 13_410,
    "plugins/zoo_experiments": 16_250,
    "plugins/zoo_export": 7_360,
    "plugins/zoo_gpu": 8_140,
    "plugins/zoo_importers": 4_120,
    "plugins/zoo_reports": 13_690,
    "plugins/zoo_serving": 2_980,
    "zoo": 5_590,
    "zoo/algebras": 5_460,
    "zoo/backbones": 14_500,
    "zoo/checkpoint": 6_870,
    "zoo/cli": 13_200,
    "zoo/conversion": 15_670,
    "zoo/data": 34_200,
    "zoo/hub": 6_140,
    "zoo/inference": 10_710,
    "zoo/kernels": 14_630,
    "zoo/nn": 24_030,
    "zoo/pruning": 9_770,
    "zoo/registry": 7_240,
    "zoo/tasks": 13_410,
    "zoo/testing": 7_420,
    "zoo/training": 31_750,
}

LAYER = {name: level for level, names in enumerate(LAYERS) for name in names}

NAMED = re.compile(r"quaternion|octonion|sedenion|clifford|cayley|(?<![a-z])phm", re.IGNORECASE)
# These are also ordinary words ("a complex tensor", "is_complex"), so only the whole name counts, with or without options.
NAMED_WHOLE = re.compile(r"(complex|dual)(\(.*\)|-\d+)?", re.IGNORECASE)

REGISTRY_ADDRESS = re.compile(
    r"\b(?:pypi|pythonhosted|anaconda|npmjs|crates)\.(?:org|com|io)\b|download\.pytorch\b|\b(?:extra-)?index[-_]url\b",
    re.IGNORECASE,
)
MACHINE_PATH = re.compile(r"(?<![\w.~/)}\]-])(?:file://)?/(?:root|home|Users|work|workspace|mnt|private)/\w|\b[A-Z]:\\+Users\b")

Sources = dict[str, str]
"""Source text by dotted module name."""


def modules(root: Path, package: str) -> Sources:
    """Read all modules of a package."""
    paths = sorted((root / package).rglob("*.py"))
    return {".".join(path.relative_to(root).with_suffix("").parts): path.read_text(encoding="utf-8") for path in paths}


ZOO = modules(ROOT, "zoo")
PLUGINS = modules(ROOT, "plugins")
STUDIES, SPEED = (modules(ROOT, f"benchmarks/{name}") for name in ("studies", "speed"))
REFERENCE = [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md")]


def package(module: str) -> str:
    """Return the package of a module, such as nn for `zoo.nn.linear`; modules of the top package are packages too."""
    return module.split(".")[1]


def imports(module: str, text: str) -> Iterator[str]:
    """Yield the dotted names of all imports, including local ones; `from a import b` yields `a.b`."""
    parts = module.split(".")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = parts[: -node.level] if node.level else []
            base = ".".join([*start, node.module] if node.module else start)
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield from (str(arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant))


def edges(sources: Sources) -> set[tuple[str, str]]:
    """Return the pairs (package, imported package) of the zoo; `from zoo import registry` imports registry."""
    packages = {package(module) for module in sources} | set(LAYER)
    pairs = set()
    for module, text in sources.items():
        for target in imports(module, text):
            head, *rest = target.split(".")
            if head == "zoo":
                pairs.add((package(module), rest[0] if rest and rest[0] in packages else "__init__"))
    return {(importer, imported) for importer, imported in pairs if importer != imported}


def upward_imports(sources: Sources) -> list[str]:
    """List imports of packages that are not in a lower layer."""
    return sorted(f"{a} imports {b}" for a, b in edges(sources) if LAYER.get(a, -1) <= LAYER.get(b, 99))


def unlisted(sources: Sources) -> set[str]:
    """Return the packages without a layer."""
    return {package(module) for module in sources} - set(LAYER)


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return a cycle in a graph of imports, or an empty list."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def package_graph(sources: Sources) -> dict[str, set[str]]:
    """Return the packages that each package imports."""
    graph: dict[str, set[str]] = {}
    for importer, imported in edges(sources):
        graph.setdefault(importer, set()).add(imported)
    return graph


def file_graph(sources: Sources) -> dict[str, set[str]]:
    """Return the files that each file imports; other names in a package count as its __init__."""
    graph: dict[str, set[str]] = {}
    for module, text in sources.items():
        for target in imports(module, text):
            parts = target.split(".")
            heads = (".".join(parts[:i]) for i in range(len(parts), 0, -1))
            file = next((name for head in heads for name in (head, f"{head}.__init__") if name in sources), None)
            if file is not None and file != module:
                graph.setdefault(module, set()).add(file)
    return graph


def public_names(pages: Iterable[str]) -> set[str]:
    """Return the dotted names that the pages of the reference document, including their modules."""
    names = set()
    for block in (block for page in pages for block in page.split("\n::: ")[1:]):
        module, members = block.partition("\n")[0], re.search(r"members: \[(.*?)\]", block)
        names |= {module, *(f"{module}.{name.strip()}" for name in (members[1].split(",") if members else ()))}
    return names


def private_names(sources: Sources, public: set[str]) -> list[str]:
    """List the imported names and attributes of `zoo` and the plugins that are not public."""
    used = {(module, target) for module, text in sources.items() for target in imports(module, text)}
    for module, text in sources.items():
        nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute))
        used |= {(module, f"zoo.{node.attr}") for node in nodes if ast.unparse(node.value) == "zoo"}
    return sorted(f"{module}: {name}" for module, name in used if re.match(r"zoo(_\w+)?(\.|$)", name) and name not in public)


def forbidden_imports(sources: Sources, forbidden: re.Pattern[str]) -> list[str]:
    """List imports that match a pattern."""
    return [
        f"{module}: {target}" for module, text in sources.items() for target in imports(module, text) if forbidden.match(target)
    ]


def words(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield all identifiers and string constants with their lines, except docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            if id(node) not in docstrings:
                yield line, node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            continue
        for key in ("id", "attr", "name", "asname", "arg", "module", "rest", "kwd_attrs", "names"):
            value = getattr(node, key, None)
            values = value if isinstance(value, list) else [value]
            yield from ((line, word) for word in values if isinstance(word, str))


def named_algebras(sources: Sources) -> list[str]:
    """List the lines of code, without docstrings and comments, that name an algebra."""
    return [
        f"{module}:{line}: {word!r}"
        for module, text in sources.items()
        for line, word in words(ast.parse(text))
        if NAMED.search(word) or NAMED_WHOLE.fullmatch(word.strip())
    ]


def repository_files() -> list[Path]:
    """List the files that git tracks or does not ignore."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [path for name in names if name and (path := ROOT / name).is_file()]


def matches(texts: dict[str, str], pattern: re.Pattern[str]) -> list[str]:
    """List the lines that match a pattern, with file and number."""
    lines = ((name, number, line) for name, text in texts.items() for number, line in enumerate(text.splitlines(), 1))
    return [f"{name}:{number}: {line.strip()}" for name, number, line in lines if pattern.search(line)]


def calls_in(text: str, function: str) -> list[str]:
    """List the names that a function calls, in the order of its lines."""
    (body,) = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef) and node.name == function)
    calls = (node for node in ast.walk(body) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    return [node.func.id for node in sorted(calls, key=lambda node: node.lineno)]


def has_parameter(text: str, *types: str) -> bool:
    """Return whether a function has a parameter of one of these types."""
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    given = (item.annotation for node in functions for item in (*node.args.args, *node.args.kwonlyargs) if item.annotation)
    return any(isinstance(node, ast.Name) and node.id in types for item in given for node in ast.walk(item))


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8", errors="ignore") for path in repository_files()}


def test_packages_have_a_layer():
    assert unlisted(ZOO) == set()
    assert set(LAYER) == {package(module) for module in ZOO}, "a layer of a package that does not exist"
    assert sum(map(len, LAYERS)) == len(LAYER), "a package in two layers"
    assert unlisted({"zoo.attic.trunk": ""}) == {"attic"}


def test_packages_import_lower_layers():
    assert upward_imports(ZOO) == []


@pytest.mark.parametrize(
    ("module", "text", "expected"),
    [
        ("zoo.nn.linear", "from zoo.backbones import vit", "nn imports backbones"),
        ("zoo.data.digits", "def f():\n    from zoo import algebras", "data imports algebras"),
        ("zoo.registry.spec", "import zoo.data", "registry imports data"),
        ("zoo.kernels.block", "from ..nn import Linear", "kernels imports nn"),
        ("zoo.kernels.block", "from zoo import load", "kernels imports __init__"),
        ("zoo.errors", "from importlib import import_module\nimport_module('zoo.cli')", "errors imports cli"),
        ("zoo.training.fit", "from zoo.testing import AlgebraContract", "training imports testing"),
        ("zoo.nn.linear", "import zoo.attic", "nn imports __init__"),
    ],
)
def test_upward_imports_are_reported(module, text, expected):
    assert upward_imports({module: text}) == [expected]


def test_packages_have_no_import_cycle():
    assert cycle(package_graph(ZOO)) == []
    bad = {"zoo.tasks.base": "import zoo.training", "zoo.training.a": "from zoo import tasks"}
    assert set(cycle(package_graph(bad))) == {"training", "tasks"}


def test_files_have_no_import_cycle():
    assert cycle(file_graph(ZOO | PLUGINS)) == []
    bad = {"zoo.data.a": "def f():\n    from zoo.data.b import g", "zoo.data.b": "from zoo.data import a"}
    assert set(cycle(file_graph(bad))) == {"zoo.data.a", "zoo.data.b"}
    assert cycle(file_graph(bad | {"zoo.data.b": "import zoo.data.c"})) == []


def test_an_option_of_the_optimizer_is_known_in_two_files():
    named = {module for module, text in (ZOO | PLUGINS).items() if "mup_base_width" in text}
    assert named == {"zoo.tasks.options", "zoo.tasks.optimization"}


def test_a_fit_reads_as_a_story():
    """Load data, build the network and its task, train, evaluate, save: in this order."""
    steps = ["read_data", "build_network", "build_task", "train", "evaluate", "save"]
    assert [name for name in calls_in(ZOO["zoo.training.fit"], "train_run") if name in steps] == steps
    swapped = "def train_run():\n    net = build_network(plan)\n    data = read_data(plan)\n"
    assert calls_in(swapped, "train_run") == ["build_network", "read_data"]


def test_the_options_of_a_run_stay_in_the_modules_that_plan_and_build_it():
    """Checkpoints, the run folder, sources and everything below get the values that they need."""
    takers = {module for module, text in ZOO.items() if has_parameter(text, "Fit", "Plan")}
    built = {"fit", "network", "session", "trainer", "bench"}
    assert takers == {f"zoo.training.{name}" for name in ("options", "resolve", *built)} | {"zoo.cli.fit"}
    assert has_parameter("def f(run: Plan | None): ...", "Plan")
    assert not has_parameter("def f(run: str) -> Plan: ...", "Plan")


def test_core_code_imports_no_plugins():
    plugin = re.compile(r"(plugins|zoo_\w+)\b")
    assert forbidden_imports(ZOO, plugin) == []
    assert len(forbidden_imports({"zoo.build": "from zoo_algebras.algebras import phm"}, plugin)) == 1


def test_studies_use_the_public_interface():
    assert private_names(STUDIES, public_names(REFERENCE)) == []
    public = {"zoo", "zoo.fit", "zoo.nn", "zoo.nn.Linear"}
    good = "import zoo\nfrom zoo.nn import Linear\nfrom zoo import nn\nzoo.fit(nn)"
    assert private_names({"benchmarks.studies.a": good}, public) == []
    for bad in ("from zoo.nn import Weight", "from zoo.nn.linear import Linear", "import zoo.atomic", "zoo.count(net)"):
        assert len(private_names({"benchmarks.studies.a": bad}, public)) == 1, bad


def test_studies_and_measurements_of_speed_are_separate():
    assert min(len(STUDIES), len(SPEED)) > 10
    assert forbidden_imports(STUDIES, re.compile(r"benchmarks\.speed\b")) == []
    assert forbidden_imports(SPEED, re.compile(r"benchmarks\.studies\b")) == []


def test_lightning_is_imported_under_one_name():
    other = re.compile(r"(pytorch_lightning|lightning_fabric)\b|lightning(?!\.pytorch\b)")
    assert forbidden_imports(ZOO | PLUGINS, other) == []
    for bad in ("import pytorch_lightning as pl", "import lightning as L", "from lightning import Trainer"):
        assert len(forbidden_imports({"zoo.build": bad}, other)) == 1, bad
    good = "import lightning.pytorch as pl\nfrom lightning.pytorch import Trainer"
    assert forbidden_imports({"zoo.build": good}, other) == []


def test_core_code_names_no_algebra():
    assert named_algebras(ZOO) == []


@pytest.mark.parametrize(
    "bad",
    [
        "class QuaternionLinear: ...",
        "make('phm-4')",
        "def f(octonions): ...",
        "x = f'{n} Clifford'",
        "from a import b as cayley_dickson",
        "ALGEBRAS = {'complex': 1}",
        "if name == 'dual': pass",
        "make('complex(n=2)')",
        "rules.complex()",
        "f(sedenion=1)",
        "def complex(): ...",
    ],
)
def test_algebras_named_in_code_are_reported(bad):
    assert len(named_algebras({"zoo.build": bad})) == 1


def test_docstrings_and_other_words_are_allowed():
    fine = '''"""Quaternions in a docstring."""
x: int
"""The quaternion of x."""
y = torch.is_complex(x) or torch.complex64  # octonion
z = torch.fx.GraphModule, "individual", "a complex tensor"
'''
    assert named_algebras({"zoo.build": fine}) == []


def test_the_code_stays_small():
    # Numbers of AST nodes, with 3 % of air. Lower a limit when its package shrinks.
    counts = code_size.nodes(ROOT)
    assert {name: count for name, count in counts.items() if count > NODES.get(name, 0)} == {}
    assert set(NODES) <= set(counts), "a limit of a package that does not exist"


def test_files_contain_no_registry_addresses(texts):
    assert matches(texts, REGISTRY_ADDRESS) == []
    for parts in (("https://files", "pythonhosted", "org/x"), ("test", "pypi", "org"), ("conda", "anaconda", "org")):
        assert matches({"a.md": ".".join(parts)}, REGISTRY_ADDRESS), parts
    assert matches({"a.md": "pip install x --index" + "-url y"}, REGISTRY_ADDRESS)


def test_files_contain_no_machine_paths(texts):
    assert matches(texts, MACHINE_PATH) == []
    for parts in (("see ", "home/me/x"), ("path=", "root/data"), ('"', "Users/me"), ("file://", "work/main")):
        assert matches({"a.md": "/".join(parts)}, MACHINE_PATH), parts
    for fine in ("tests/home/me", "../home/x", "~/home/x", "{folder}/home/x", "see https://example.org/home/x"):
        assert matches({"a.md": fine}, MACHINE_PATH) == [], fine


def test_git_ignores_no_source_files():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    paths = [str(path) for folder in ("zoo", "plugins/zoo_algebras", "tests") for path in sorted((ROOT / folder).rglob("*.py"))]
    command = ["git", "check-ignore", "--no-index", "--stdin"]
    ignored = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, input="\n".join(paths), check=False).stdout
    assert [str(Path(path).relative_to(ROOT)) for path in ignored.splitlines()] == []
