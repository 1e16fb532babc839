"""A process that archives files as a stream and is killed in its second batch, after that batch's rows are written."""

import os
import signal
import sys

from pyspark.sql import DataFrame

import quire.spark
from quire.spark.pipelines.archive_files import Archive


def main(source: str, directory: str) -> None:
    """Archive ``source`` to ``directory`` until the kill."""
    spark = quire.spark.session(memory="512m", spark__ui__enabled="false")
    archive = Archive(spark, directory)
    write = archive.write

    def write_and_die(rows: DataFrame, number: int) -> None:
        write(rows, number)
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    archive.write = write_and_die  # type: ignore[method-assign]
    stream = spark.readStream.schema(spark.read.parquet(source).schema).option("maxFilesPerTrigger", 1).parquet(source)
    archive.start(stream).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
