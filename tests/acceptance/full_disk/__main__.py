"""What a full disk does to a broker, step by step: ``python -m tests.acceptance.full_disk --store sqlite``."""

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.acceptance.full_disk.scenario import SIZE, FullDisk, mounted, run


def main() -> None:
    """Run it as root. A failure ends it with the assertion."""
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.full_disk")
    parser.add_argument("--store", choices=["lmdb", "sqlite"], default="lmdb")
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quire-full-disk-")))
        disk = stack.enter_context(mounted(directory / "small", SIZE))
        full = FullDisk(directory, disk, options.store)
        stack.callback(full.broker.kill)
        try:
            run(full, lambda text: print(text, flush=True))
        except AssertionError:
            print(full.broker.log)
            raise


if __name__ == "__main__":
    main()
