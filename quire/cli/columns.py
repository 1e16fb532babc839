"""Columns of tables that more than one noun shows."""

from quire.cli.output import Column

CONSUMER_COLUMNS = [
    Column("connection", "Connection"),
    Column("id", "Id"),
    Column("ack", "Ack"),
    Column("selector", "Selector", 40),
    Column("prefetch", "Prefetch"),
    Column("in_flight", "In flight"),
    Column("credit", "Credit"),
    Column("priority", "Priority"),
    Column("exclusive", "Exclusive"),
    Column("slow_seconds", "Slow for"),
]

HELD_COLUMNS = [
    Column("connection", "Connection"),
    Column("destination", "Destination"),
    Column("cause", "Cause"),
    Column("age_seconds", "Age"),
    Column("limit_seconds", "Limit"),
]
