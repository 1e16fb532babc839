"""The console of a broker: ``python -m quire.console --address HOST:PORT --url URL``. Only a broker starts it so.

It gives way to the broker (nice(2)), is in a process group of its own, so that a Ctrl-C for the broker is not for it,
and ends when the broker's end of its standard input is closed. It says on standard output where it listens, or why it
does not.
"""

import argparse
import os
import sys

import msgspec

from quire.console.process import run
from quire.console.session import ConsoleTls
from quire.errors import QuireError
from quire.logs import configure

NICENESS = 10  # how much it gives way to others: where all processors are busy, it gets about a tenth of one


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m quire.console")
    parser.add_argument("--address", required=True)
    parser.add_argument("--url", action="append", required=True)
    parser.add_argument("--insecure", action="store_true")
    parser.add_argument("--names", default="")
    parser.add_argument("--certificate", default="")
    parser.add_argument("--key", default="")
    parser.add_argument("--pinned", default="")
    parser.add_argument("--log-format", default="auto")
    parser.add_argument("--log-level", default="info")
    arguments = parser.parse_args()
    configure(arguments.log_format, arguments.log_level)
    os.setpgid(0, 0)
    os.nice(NICENESS)
    tls = ConsoleTls(arguments.certificate, arguments.key, arguments.pinned)
    try:
        run(
            arguments.address, arguments.url, tls, insecure=arguments.insecure, names=arguments.names, started=_started,
            with_parent=True,
        )  # fmt: skip
    except QuireError as error:
        _announce({"error": str(error), "code": error.code})
        return error.entry.exit
    return 0


def _started(address: str) -> None:
    _announce({"address": address})


def _announce(line: dict[str, str]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
