"""The data source that Spark knows as ``quire``."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from quire.spark.batch_reader import columns_of, read_schema, reader_class
from quire.spark.options import Options, Use, explaining, wanted_headers
from quire.spark.stream_reader import StreamReader
from quire.spark.writing import BatchWriter, StreamWriter


class QuireDataSource(DataSource):
    """Messages as rows: ``spark.read.format("quire")``. A given schema names the columns to read."""

    @classmethod
    def name(cls) -> str:
        return "quire"

    def schema(self) -> StructType:
        with explaining():
            return read_schema(wanted_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        with explaining():
            options = Options.of(self.options, Use.READ)
            return reader_class()(options, columns_of(schema, options.include_headers))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        with explaining():
            options = Options.of(self.options, Use.STREAM)
            return StreamReader(options, columns_of(schema, options.include_headers))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with explaining():
            return BatchWriter(Options.of(self.options, Use.WRITE), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        with explaining():
            return StreamWriter(Options.of(self.options, Use.STREAM_WRITE), schema)
