"""Where a pipeline reads: a broker, a store, or Parquet files."""

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from quire.destination import Destination, DestinationKind
from quire.errors import InvalidArgument
from quire.spark.online import Broker, Source
from quire.spark.options import Options, Use
from quire.spark.pipelines.archive_files import COMPACTED
from quire.spark.pipelines.files import is_there, read_or_none
from quire.spark.pipelines.ledger import unpack

DEFAULT_URL = "http://127.0.0.1:8161"

LEDGER = "stream://$quire.ledger"  # the stream that a broker writes its delivery ledger to


@dataclass(frozen=True, slots=True)
class Place:
    """Where messages or ledger rows are: at a broker's HTTP address, in a store, or in a directory of Parquet files.

    Destinations to read stand with commas between them; ``LEDGER`` gives its rows. Parquet files are read whole.
    ``options`` are more options for the reader, and ``login`` those that a broker needs to know who reads.
    """

    url: str | None = None
    store: str | None = None
    parquet: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    login: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len([place for place in (self.url, self.store, self.parquet) if place]) != 1:
            raise InvalidArgument("give one of --url, --store, --parquet")

    def __str__(self) -> str:
        # A store's URL may have a password.
        return self.url or self.parquet or "the store"

    @property
    def can_stream(self) -> bool:
        """Whether what is added later can be read as it comes."""
        return self.store is None

    def read(self, spark: SparkSession, subscribe: str = "", **options: str) -> DataFrame:
        if self.parquet:
            return self._files(spark)
        return _rows(spark.read.format("quire").options(**self._options(subscribe, options)).load(), subscribe)

    def read_stream(self, spark: SparkSession, subscribe: str = "", **options: str) -> DataFrame:
        if self.parquet:
            if is_there(spark, f"{self.parquet.rstrip('/')}/{COMPACTED}"):
                text = "is an archive that was compacted, whose files a streaming read may read twice"
                raise InvalidArgument(f"{self.parquet} {text}: read it as a batch", directory=self.parquet)
            schema = self._files(spark).schema
            return spark.readStream.schema(schema).options(**self.options).parquet(self.parquet)
        if self.store:
            raise InvalidArgument("a store can be read only once; for new messages read from a broker: give --url")
        given = {"startingOffsets": "earliest"} | self._options(subscribe, options)
        return _rows(spark.readStream.format("quire").options(**given).load(), subscribe)

    def target(self) -> dict[str, str]:
        assert self.url is not None
        return {"broker.url": self.url, **self.login}

    def destinations(self) -> list[str]:
        with Source(self._all()).lanes() as lanes:
            found = [stored for stored in lanes.destinations if stored.kind in list(DestinationKind)]
            return [str(Destination(DestinationKind(stored.kind), stored.name)) for stored in found]

    def policies(self) -> list[dict[str, Any]]:
        """The values that the broker's policies set: what holds everywhere, and of each entry what differs from it."""
        answer = Broker.of(self._all()).get("/policies", dict[str, Any])
        base = {one["key"]: one["value"] for one in answer["base"]}
        return [base, *[base | entry["values"] for entry in answer["entries"]]]

    def _all(self) -> Options:
        given = self._options("", {}) | {"subscribePattern": ">"}
        return Options.of({name: value for name, value in given.items() if name != "subscribe"}, Use.READ)

    def _files(self, spark: SparkSession) -> DataFrame:
        assert self.parquet is not None
        found = read_or_none(spark, self.parquet, self.options)
        if found is None:
            raise InvalidArgument(f"there are no Parquet files in {self.parquet}", directory=self.parquet)
        return found

    def _options(self, subscribe: str, options: dict[str, str]) -> dict[str, str]:
        where = {"broker.url": self.url, **self.login} if self.url else {"store.url": self.store or ""}
        return where | {"subscribe": subscribe} | options | self.options


def _rows(messages: DataFrame, subscribe: str) -> DataFrame:
    return unpack(messages) if subscribe == LEDGER else messages
