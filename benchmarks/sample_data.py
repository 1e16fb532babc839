"""Messages of a shop that does not exist: orders, and for each a payment and a delivery; JSON, with headers and keys.

A message depends on the seed and on its number only. So any part of the messages can be made anywhere, on Spark's
workers say, and is the same every time.
"""

import json
import random
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
from faker import Faker
from pyspark.sql import DataFrame, SparkSession

KINDS = ("order", "payment", "delivery")
"""What messages are of, in turn: message 0 is the first order, 1 its payment, 2 its delivery, 3 the second order."""

SCHEMA = "destination string, key string, headers map<string,string>, value binary"
"""The columns of a DataFrame of messages: what the data source writes."""

_CUSTOMERS, _PRODUCTS = 500, 100
_BATCH = 1000
_OPENED = datetime(2026, 1, 1, tzinfo=UTC)
_METHODS = ("card", "invoice", "transfer", "voucher")
_CARRIERS = ("by bicycle", "by van", "by train")


class SampleMessage(NamedTuple):
    """A message: JSON as bytes, for a destination such as ``queue://orders``. Messages of one order have one key."""

    destination: str
    key: str
    headers: dict[str, str]
    body: bytes


class SampleData:
    """Makes messages for the destinations ``orders``, ``payments`` and ``deliveries``, with a prefix before each."""

    def __init__(self, seed: int = 1, prefix: str = "queue://") -> None:
        self._seed = seed
        self._prefix = prefix
        fake = Faker(["en_GB", "de_DE", "fr_FR"], use_weighting=False)
        fake.seed_instance(seed)
        # Faker takes its time for each name: a shop knows its customers.
        self._customers = [_customer(fake) for _ in range(_CUSTOMERS)]
        dice = self._dice("products", 0)
        self._products = [(f"{fake.color_name()} {fake.word()}", dice.randrange(99, 20_000)) for _ in range(_PRODUCTS)]

    def messages(self, count: int, start: int = 0) -> Iterator[SampleMessage]:
        """So many messages, from a number on."""
        for number in range(start, start + count):
            yield self.message(number)

    def message(self, number: int) -> SampleMessage:
        """The message of a number, from 0."""
        of, which = divmod(number, len(KINDS))
        kind = KINDS[which]
        order = self._order(of)
        content = {"order": order, "payment": self._payment(of, order), "delivery": self._delivery(of, order)}[kind]
        headers = {"content-type": "application/json", "type": kind, "country": order["customer"]["country"]}
        plural = {"order": "orders", "payment": "payments", "delivery": "deliveries"}[kind]
        body = json.dumps(content, ensure_ascii=False).encode()
        return SampleMessage(self._prefix + plural, order["order"], headers, body)

    def frame(self, spark: SparkSession, count: int) -> DataFrame:
        """Messages as a DataFrame, made by Spark's workers."""
        return spark.range(count).mapInArrow(_maker(self._seed, self._prefix), SCHEMA)

    def _order(self, number: int) -> dict[str, Any]:
        dice = self._dice("order", number)
        products = dice.sample(self._products, dice.choice((1, 1, 1, 2, 3, 5)))
        lines: list[dict[str, Any]] = [
            {"product": name, "quantity": dice.randint(1, 4), "price": price / 100} for name, price in products
        ]
        placed = _OPENED + timedelta(seconds=number, milliseconds=dice.randrange(1000))
        return {
            "order": f"O-{number + 1:08}",
            "placed": placed.isoformat(timespec="milliseconds"),
            "customer": dice.choice(self._customers),
            "lines": lines,
            "total": round(sum(line["quantity"] * line["price"] for line in lines), 2),
            "currency": "EUR",
        }

    def _payment(self, number: int, order: dict[str, Any]) -> dict[str, Any]:
        dice = self._dice("payment", number)
        return {
            "payment": f"P-{number + 1:08}",
            "order": order["order"],
            "amount": order["total"],
            "currency": order["currency"],
            "method": dice.choice(_METHODS),
            "state": "refused" if dice.random() < 0.02 else "accepted",
        }

    def _delivery(self, number: int, order: dict[str, Any]) -> dict[str, Any]:
        dice = self._dice("delivery", number)
        return {
            "delivery": f"D-{number + 1:08}",
            "order": order["order"],
            "to": {name: order["customer"][name] for name in ("name", "street", "city", "country")},
            "carrier": dice.choice(_CARRIERS),
            "parcels": sum(line["quantity"] for line in order["lines"]),
            "days": dice.randint(1, 6),
        }

    def _dice(self, kind: str, number: int) -> random.Random:
        return random.Random(f"{self._seed}/{kind}/{number}")


def _customer(fake: Any) -> dict[str, str]:
    locale = fake.random_element(fake.locales)
    of = fake[locale]
    return {
        "name": of.name(),
        "email": of.safe_email(),
        "street": of.street_address(),
        "city": of.city(),
        "country": locale.rpartition("_")[2],
    }


def _maker(seed: int, prefix: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function that Spark runs: from numbers to messages."""

    def make(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        data = SampleData(seed, prefix)
        names = pa.schema(
            [("destination", pa.string()), ("key", pa.string()), ("headers", pa.map_(pa.string(), pa.string())),
             ("value", pa.binary())]
        )  # fmt: skip
        for batch in numbers:
            ids = batch.column("id").to_pylist()
            for start in range(0, len(ids), _BATCH):
                rows = [data.message(number) for number in ids[start : start + _BATCH]]
                columns = [list(column) for column in zip(*rows, strict=True)]
                columns[2] = [list(headers.items()) for headers in columns[2]]
                yield pa.record_batch(columns, schema=names)

    return make
