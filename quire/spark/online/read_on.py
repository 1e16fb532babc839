"""Reads that go on where they were when they break off."""

from collections.abc import Callable, Generator, Iterator

import pyarrow as pa

from quire.arrow.lanes import LaneRange
from quire.errors import QuireError
from quire.spark.online.patience import Patience

OFFSET = "offset"


def read_on(
    batches: Callable[[LaneRange, list[str]], Iterator[pa.RecordBatch]], part: LaneRange, columns: list[str],
    patience: Patience,
) -> Generator[pa.RecordBatch, None, None]:  # fmt: skip
    """The columns of a part of a lane, read by ``batches``; after a failure the rest is read."""
    wanted = columns if OFFSET in columns else [*columns, OFFSET]
    while True:
        try:
            for batch in batches(part, wanted):
                patience.succeeded()
                part = part._replace(first=batch.column(OFFSET)[-1].as_py() + 1)
                yield batch if wanted is columns else batch.select(columns)
            return
        except QuireError as error:
            patience.pause_after(error)
