"""Cursors: which messages are in memory, and how the others get there. The rules are in ``docs/cursors.md``."""
