"""The broker: a synchronous, deterministic core, and the transports that drive it."""
