"""Sample data: the same every time, and its messages fit each other."""

import json

import pytest
from pyspark.sql import SparkSession

from benchmarks.sample_data import SampleData
from quire.destination import written

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_seed_decides_everything() -> None:
    first = list(SampleData(7).messages(30))
    assert list(SampleData(7).messages(30)) == first
    assert list(SampleData(7).messages(10, start=20)) == first[20:]
    assert list(SampleData(8).messages(30)) != first


def test_an_order_its_payment_and_its_delivery_fit() -> None:
    order, payment, delivery, following = SampleData(1, "stream://").messages(4)
    contents = [json.loads(message.body) for message in (order, payment, delivery)]
    assert order.key == payment.key == delivery.key != following.key
    assert {content["order"] for content in contents} == {order.key}
    assert contents[1]["amount"] == contents[0]["total"] > 0
    assert contents[2]["to"]["city"] == contents[0]["customer"]["city"]
    assert [str(written(message.destination)) for message in (order, payment, delivery)] == [
        "stream://orders", "stream://payments", "stream://deliveries",
    ]  # fmt: skip
    assert order.headers == {"content-type": "application/json", "type": "order", "country": order.headers["country"]}


def test_spark_makes_the_same_messages(spark: SparkSession) -> None:
    data = SampleData(3)
    rows = data.frame(spark, 25).collect()
    found = sorted((row.destination, row.key, row.headers, bytes(row.value)) for row in rows)
    assert found == sorted(map(tuple, data.messages(25)))
