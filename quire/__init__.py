"""Quire: a persistent message broker that pages messages in only when there is space for them."""

__version__ = "0.1.0"
