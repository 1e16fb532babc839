"""``quire perf``: a load generator for STOMP brokers, and scenarios with promises."""

from quire.cli.perf.commands import perf

__all__ = ["perf"]
