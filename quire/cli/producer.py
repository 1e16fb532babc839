"""``quire producer``: producers that number their sends."""

from quire.cli.output import columns
from quire.cli.resource import Resource

producer = Resource("producer", "List and forget producers that number their sends.", "producers", "id")
producer.ls(
    "List the producers, the highest accepted number of each, and when it sent last.",
    columns("id", "sequence", "last_sent"), paged=True,
)  # fmt: skip
producer.act(
    "forget", "DELETE", "Forget a producer: the broker then accepts its repeated messages as new.", "forgot {it}"
)
