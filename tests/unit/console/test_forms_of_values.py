"""Bodies, the topology, preferences, paths: what pages make of values before they show them."""

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.console.elements import hexadecimal
from quire.console.page import Preferences, read_preferences
from quire.console.plot import sankey
from quire.console.session import path_of
from tests.unit.console.shapes import HOSTILE


def test_bytes_are_lines_of_offset_numbers_and_characters() -> None:
    first, second = hexadecimal(b"two coffees, \x00\xff please").splitlines()
    assert first == "00000000  74 77 6f 20 63 6f 66 66 65 65 73 2c 20 00 ff 20  two coffees, .. "
    assert second.startswith("00000010  70 6c 65 61 73 65  ")
    assert hexadecimal(bytes(5000)).splitlines()[-1] == "… 904 bytes more"


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30))
def test_a_diagram_has_no_circle_and_keeps_every_edge_that_makes_none(pairs: list[tuple[int, int]]) -> None:
    nodes = [
        {"id": str(at), "kind": "queue", "name": f"q{at}", "depth": None, "role": None, "waits": None}
        for at in range(7)
    ]
    edges = [{"from": str(a), "to": str(b), "rate": 1.0, "waits": None} for a, b in pairs]
    options, height = sankey(nodes, edges)
    links = [(link["source"], link["target"]) for link in options["series"][0]["links"]]
    reached: dict[str, set[str]] = {}
    for source, target in links:
        assert source not in reached.get(target, set())
        assert source != target
        behind = {target} | reached.get(target, set())
        for node, others in [*reached.items(), (source, set())]:
            if node == source or source in others:
                reached[node] = reached.get(node, set()) | behind
    assert height >= 280
    if all(a < b for a, b in pairs):
        assert len(links) == len(edges)


def test_names_in_a_diagram_are_no_templates_of_labels() -> None:
    nodes = [{"id": "1", "kind": "queue", "name": "{b} {name|x}", "depth": 3, "role": None, "waits": None}]
    options, _ = sankey(nodes, [])
    assert options["series"][0]["data"][0]["label"]["formatter"] == "(b) (name|x) · 3"


@pytest.mark.parametrize("name", [*HOSTILE, ".", "", "a b", "ü"])
def test_a_name_is_one_part_of_a_path(name: str) -> None:
    path = path_of("queues", name)
    assert path.count("/") == 2
    assert path.rpartition("/")[2] not in (".", "..")


def cookie(value: object) -> str:
    return f"a=b; quire_preferences={quote(json.dumps(value))}; c=d"


def test_preferences_are_read_from_the_cookie() -> None:
    given = {"theme": "dark", "columns": {"queues": ["name", "depth"]}, "rows": 100}
    read = read_preferences(cookie(given))
    assert (read.theme, read.columns, read.rows) == ("dark", {"queues": ["name", "depth"]}, 100)


@pytest.mark.parametrize(
    "cookies",
    ["", "x", cookie({"theme": "pink"}), cookie([1]), "quire_preferences=%ff", "quire_preferences={", "=;="],
)
def test_preferences_that_are_not_valid_are_as_they_come(cookies: str) -> None:
    assert read_preferences(cookies) == Preferences()
