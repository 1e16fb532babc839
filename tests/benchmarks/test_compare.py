"""The table of the comparison with other brokers."""

from pathlib import Path

import pytest

from benchmarks.compare import PAGE, TARGETS, Row, replace_table, table


def test_the_page_has_a_place_for_every_table() -> None:
    page = PAGE.read_text("utf-8")
    for store in TARGETS:
        assert "the table" in replace_table(page, store, "the table")
    assert PAGE.samefile(Path(__file__).parents[2] / "docs" / "performance.md")


def test_only_what_stands_between_the_markers_is_replaced() -> None:
    page = "before\n<!-- lmdb: begin -->\n\nold\n\n<!-- lmdb: end -->\nafter\n"
    once = replace_table(page, "lmdb", "new")
    assert once == "before\n<!-- lmdb: begin -->\n\nnew\n\n<!-- lmdb: end -->\nafter\n"
    assert replace_table(once, "lmdb", "new") == once


def test_a_page_without_markers_is_left_alone() -> None:
    with pytest.raises(ValueError, match="no markers for sqlite"):
        replace_table("<!-- lmdb: begin -->\n<!-- lmdb: end -->\n", "sqlite", "new")


def test_a_ratio_is_how_many_times_as_fast_quire_is() -> None:
    medians = {
        Row("confirm", "messages_per_s"): {"Quire": 3000.4, "RabbitMQ": 1000.0, "ActiveMQ": 500.0},
        Row("backlog", "sent_per_s"): {"Quire": 1000.0, "RabbitMQ": 2000.0, "ActiveMQ": 500.0},
    }
    assert table(medians, "sqlite") == [
        "| scenario | figure | Quire | RabbitMQ | ActiveMQ | Quire : RabbitMQ | Quire : ActiveMQ | target |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| confirm | messages | 3,000/s | 1,000/s | 500/s | 3.00 | 6.00 | 0.7 x RabbitMQ |",
        "| backlog | sent | 1,000/s | 2,000/s | 500/s | 0.50 | 2.00 |  |",
    ]
