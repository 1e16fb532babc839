"""Large operations on a running broker: how long the event loop was busy at a stretch, and what memory they took."""
