"""A broker of a cluster whose shards have forgotten their fence. It is here to be found out."""

from typing import Any

from quire.cli.main import main
from quire.server.cluster import broker_process

_run = broker_process.run


def run_unfenced(settings: Any, file: Any, flags: Any, module: str, console: Any) -> int:
    """Run the broker with other processes for its shards."""
    assert module == "quire.http.shard"
    return _run(settings, file, flags, "benchmarks.cluster.unfenced_shard", console)


if __name__ == "__main__":
    broker_process.run = run_unfenced
    main()
