"""Composite destinations in the settings: what an entry says, and what is wrong with others."""

from typing import Any

import pytest

from quire.destination import queue, topic
from quire.errors import InvalidSettings
from quire.settings import Composite, Forward
from quire.settings.policy import read_composites


def test_an_entry_says_what_goes_where() -> None:
    entries = [
        {"queue": "orders", "forward_to": ["queue://a", "b", {"destination": "topic://c", "selector": "x = 1"}]},
        {"topic": "orders", "forward_to": [{"destination": "queue://orders"}], "forward_only": False},
    ]
    assert read_composites(entries, "file f") == (
        Composite(queue("orders"), (Forward("queue://a"), Forward("queue://b"), Forward("topic://c", "x = 1"))),
        Composite(topic("orders"), (Forward("queue://orders"),), forward_only=False),
    )


@pytest.mark.parametrize(
    ("entry", "key", "text"),
    [
        ({}, "composites", "either queue"),
        ({"queue": "a", "topic": "a", "forward_to": ["b"]}, "composites", "either queue"),
        ({"queue": "a.>", "forward_to": ["b"]}, "queue", "is not a name for a queue"),
        ({"topic": 5, "forward_to": ["b"]}, "topic", "write a text"),
        ({"queue": "a"}, "forward_to", "a list such as"),
        ({"queue": "a", "forward_to": []}, "forward_to", "a list such as"),
        ({"queue": "a", "forward_to": "b"}, "forward_to", "a list such as"),
        ({"queue": "a", "forward_to": ["b", 5]}, "forward_to", "write a text"),
        ({"queue": "a", "forward_to": ["b.*"]}, "forward_to", "is not a name for a queue"),
        ({"queue": "a", "forward_to": ["http://b"]}, "forward_to", "write queue://NAME"),
        ({"queue": "a", "forward_to": [{"selector": "x"}]}, "forward_to", "write destination"),
        ({"queue": "a", "forward_to": [{"destination": "b", "select": "x"}]}, "forward_to", "write destination"),
        ({"queue": "a", "forward_to": [{"destination": "b", "selector": 1}]}, "forward_to", "write a text"),
        ({"queue": "a", "forward_to": ["b", "queue://b"]}, "forward_to", "to each one once"),
        ({"queue": "a", "forward_to": ["queue://a"]}, "forward_to", "forwards to other destinations"),
        ({"queue": "a", "forward_to": ["b"], "forward_only": "no"}, "forward_only", "true or false"),
        ({"queue": "a", "forward": ["b"]}, "forward", "did you mean forward_to?"),
    ],
)
def test_a_wrong_entry_is_an_error_that_names_it(entry: dict[str, Any], key: str, text: str) -> None:
    with pytest.raises(InvalidSettings, match="file f, composite 2") as caught:
        read_composites([{"queue": "fine", "forward_to": ["b"]}, entry], "file f")
    assert caught.value.data["key"] == key
    assert text in str(caught.value)


def test_two_composites_of_one_name_are_an_error() -> None:
    entry = {"queue": "a", "forward_to": ["b"]}
    with pytest.raises(InvalidSettings, match="another composite destination has this name"):
        read_composites([entry, entry], "file f")
    assert len(read_composites([entry, {"topic": "a", "forward_to": ["b"]}], "file f")) == 2


@pytest.mark.parametrize("tables", [{"queue": "a"}, "a", ["a"], 5])
def test_what_is_no_array_of_tables_is_an_error(tables: object) -> None:
    with pytest.raises(InvalidSettings, match=r"begin each entry with \[\[composites\]\]"):
        read_composites(tables, "file f")
