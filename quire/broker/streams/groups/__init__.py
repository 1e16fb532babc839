"""Consumer groups: who reads what of a stream, and what became of it."""
