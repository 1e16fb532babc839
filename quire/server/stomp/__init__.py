"""STOMP clients: their frames, as calls of the core."""
