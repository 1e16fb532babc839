"""Queues: their lanes, and who gets which message."""
