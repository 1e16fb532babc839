"""The steps of the LMDB store's format, and the order they are taken in."""

from quire.migrations.lmdb import step_0002_checksums

STEPS = {2: step_0002_checksums}  # each step by the format it leads to
