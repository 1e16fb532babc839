"""The architecture: its map names every module of the broker, its layers hold, and its walk is that of a message."""

import ast
import re
import tomllib
from collections import defaultdict

import pytest

from tests.docs.message_walk import Walk, message_walks
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")

MAPPED = ("broker", "management", "server", "sessions")
"""The packages whose modules it lists."""

MOST_FILES, MOST_FILES_OF_A_NEW_HEAD, MOST_FILES_OF_AN_ACKNOWLEDGEMENT = 20, 7, 12
"""How many files a message may enter whose head is known, how many more one with a new head, and how many an
acknowledgement enters until it is in the open commit: to be read."""

KNOWN_HEAD = "## The walk of one persistent message"
NEW_HEAD = "### A head that the connection has not seen"

_NAME = re.compile(r"`([\w.]+)`")
_STEP = re.compile(r"`([\w/]+\.py)`(?:,\s`(\w+)`)?")


def _section(title: str) -> str:
    start = PAGE.index(title + "\n") + len(title)
    return re.split(r"^##", PAGE[start:], maxsplit=1, flags=re.MULTILINE)[0]


# The layers.


def _drawn(title: str) -> list[set[str]]:
    """The layers that a section draws, from above."""
    drawing = _section(title).split("```")[1].split("\n", 1)[1]
    lines = [re.split(r" {2,}", line)[0] for line in drawing.rstrip("\n").split("\n")]
    return [set(re.split(r" [|:] ", line)) for line in lines]


def test_the_layers_are_those_that_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["id"] == "layers"]
    there = {path.stem for path in (ROOT / "quire").iterdir()}
    checked = [{name for name in re.split(r" [|:] ", layer.replace("(", "").replace(")", ""))} for layer in layers]
    assert _drawn("## The layers") == [layer & there for layer in checked]


def test_each_part_of_the_broker_imports_from_layers_below_its_own() -> None:
    layers = _drawn("## The layers inside `broker`")
    level = {name: number for number, layer in enumerate(layers) for name in layer}
    assert sum([len(layer) for layer in layers]) == len(level)
    assert set(level) == {path.stem for path in (ROOT / "quire/broker").iterdir()} - {"__init__", "__pycache__"}
    for part, number in level.items():
        package = ROOT / "quire/broker" / part
        for path in package.rglob("*.py") if package.is_dir() else [package.with_suffix(".py")]:
            imported = set(re.findall(r"^\s*from quire\.broker\.(\w+)", path.read_text("utf-8"), re.MULTILINE))
            upwards = [name for name in imported - {part} if level[name] <= number]
            assert upwards == [], f"{path} imports from its own layer or one above it"


# The map.


def _mapped() -> dict[str, list[str]]:
    """The modules that the map names, by the package under which it names them."""
    named = defaultdict[str, list[str]](list)
    package = ""
    for line in _section("## The map").split("\n"):
        if line.startswith("| **"):
            package = _NAME.findall(line)[0]
            named[package] = []
        elif line.startswith("| `"):
            named[package] += _NAME.findall(line.split(" | ")[0])
    return named


def _modules() -> dict[str, list[str]]:
    """Those that are there, by package."""
    modules = defaultdict[str, list[str]](list)
    for path in [path for layer in MAPPED for path in ROOT.glob(f"quire/{layer}/**/*.py")]:
        package = ".".join(path.parent.relative_to(ROOT / "quire").parts)
        modules[package] += [] if path.stem == "__init__" else [path.stem]
    return modules


def test_the_packages_are_those_that_are_there() -> None:
    assert sorted(_mapped()) == sorted(_modules())


def test_the_tables_name_every_module_of_the_broker_once() -> None:
    named = _mapped()
    for package, modules in _modules().items():
        assert sorted(named[package]) == sorted(modules), package


# The walk.


def test_the_walks_lead_through_functions_that_are_there() -> None:
    steps = _STEP.findall(PAGE)
    assert len(steps) > 20
    for path, function in steps:
        nodes = ast.walk(ast.parse((ROOT / "quire" / path).read_text("utf-8")))
        functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert not function or function in functions, f"{path} has no {function}"


def _files(title: str) -> set[str]:
    return {path for path, _ in _STEP.findall(_section(title))}


def _compare(named: set[str], entered: list[str], most: int) -> None:
    """See that a section names the files that were entered, and that these are few enough to be read."""
    trace = "\n".join(entered)
    assert named == set(entered), f"named only: {named - set(entered)}; entered only: {set(entered) - named}:\n{trace}"
    assert len(entered) <= most, trace


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Walk, Walk, Walk]:
    """Those of a message in a running broker, with a known head and with a new one; that of an acknowledgement."""
    return message_walks(tmp_path_factory.mktemp("walk"))


def test_the_walk_names_the_files_that_a_message_enters(walks: tuple[Walk, Walk, Walk]) -> None:
    _compare(_files(KNOWN_HEAD), list(walks[0]), MOST_FILES)


def test_a_new_head_enters_the_files_that_are_named_for_it_and_those_of_a_known_one(
    walks: tuple[Walk, Walk, Walk],
) -> None:
    known, new, _ = walks
    _compare(_files(NEW_HEAD), [path for path in new if path not in known], MOST_FILES_OF_A_NEW_HEAD)
    assert set(known) - set(new) == set()


def test_an_acknowledgement_enters_few_of_the_files_that_a_message_enters(walks: tuple[Walk, Walk, Walk]) -> None:
    known, _, acknowledgement = walks
    assert set(acknowledgement) - set(known) == set()
    assert "broker/queues/queue.py" in acknowledgement
    assert len(acknowledgement) <= MOST_FILES_OF_AN_ACKNOWLEDGEMENT, "\n".join(acknowledgement)


def test_the_functions_that_the_walk_names_are_entered(walks: tuple[Walk, Walk, Walk]) -> None:
    steps = [*_STEP.findall(_section(KNOWN_HEAD)), *_STEP.findall(_section(NEW_HEAD))]
    named = {(path, function) for path, function in steps if function}
    entered = {(path, function) for walk in walks for path, functions in walk.items() for function in functions}
    assert named - entered == set()
    assert len(named) > 8
