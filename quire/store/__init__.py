"""Stores: the SPI, the group-commit writer, and LMDB, SQL and memory behind it."""
