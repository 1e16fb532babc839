"""The delivery ledger: what becomes of messages, kept as a stream."""
