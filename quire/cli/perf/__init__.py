"""``quire perf``: a load generator for STOMP brokers."""

from quire.cli.perf.commands import perf

__all__ = ["perf"]
