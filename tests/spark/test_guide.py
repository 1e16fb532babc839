"""The examples of the guides for Spark that need no broker, on rows of the test's own."""

import re
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.docs.pages import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def example(page: str, text: str) -> str:
    """The one example of a page that has a text in it."""
    (found,) = [code for code in _BLOCK.findall((ROOT / "docs" / page).read_text("utf-8")) if text in code]
    return str(found)


def test_bodies_of_json_become_columns(spark: SparkSession) -> None:
    bodies = [b'{"id": 7, "amount": 2.5, "customer": "a"}', b"no JSON"]
    rows = [(0, number, bytearray(body)) for number, body in enumerate(bodies, 1)]
    names: dict[str, Any] = {"orders": spark.createDataFrame(rows, "partition int, offset bigint, value binary")}
    exec(example("spark.md", "from_json"), names)
    assert [tuple(row) for row in names["amounts"].collect()] == [(1, 7, 2.5, "a"), (2, None, None, None)]
