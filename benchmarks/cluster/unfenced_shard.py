"""Runs shards whose stores have forgotten their fence."""

import runpy

from benchmarks.takeover.unfenced import forget

if __name__ == "__main__":
    forget()
    runpy.run_module("quire.http.shard", run_name="__main__")
