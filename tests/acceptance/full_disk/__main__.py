"""What a full disk does to a broker, step by step: ``python -m tests.acceptance.full_disk --store sqlite``."""

import argparse
import tempfile
from pathlib import Path

from tests.acceptance.full_disk.scenario import SIZE, FullDisk, run
from tests.acceptance.full_disk.small_disk import mounted


def main() -> None:
    """Run it as root. A failure ends it with the assertion."""
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.full_disk")
    parser.add_argument("--store", choices=["lmdb", "sqlite"], default="lmdb")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quire-full-disk-") as directory:
        with mounted(Path(directory) / "small", SIZE) as disk:
            full = FullDisk(Path(directory), disk, options.store)
            try:
                run(full, lambda text: print(text, flush=True))
            except BaseException:
                print(full.broker.log)
                raise
            finally:
                full.broker.kill()


if __name__ == "__main__":
    main()
