"""Writing rows as messages, over a broker's HTTP API."""
