"""Runs shards with a planted fault, which the environment names."""

import os
import runpy

from benchmarks.takeover.planted import FAULTS

FAULT = "PLANTED_FAULT"

if __name__ == "__main__":
    FAULTS[os.environ[FAULT]]()
    runpy.run_module("quire.http.shard", run_name="__main__")
