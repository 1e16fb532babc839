"""Checks the store whose URL is on standard input; writes its progress and what it finds as JSON lines."""

import os
import sys

import msgspec

from quire.errors import QuireError
from quire.http.verification.report import Report
from quire.store.maintenance.open_store import open_for_reading
from quire.store.maintenance.verify import verify

NICENESS = 10
"""How much less than the broker the check counts for the processor."""


def main() -> None:
    """Check the store. It ends when the broker does not read its output any more."""
    os.nice(NICENESS)
    records = 0

    def write(report: Report) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()

    def progress(count: int) -> None:
        nonlocal records
        records += count
        write(Report(records))

    try:
        with open_for_reading(sys.stdin.readline().strip()) as (store, maintenance):
            for finding in verify(store, maintenance, progress):
                place = finding.destination or f"lane {finding.lane}"
                write(Report(records, f"{place}: {finding.problem}: {finding.text}"))
        write(Report(records, ended=True))
    except BrokenPipeError:
        sys.exit(1)
    except QuireError as error:
        write(Report(records, error=str(error)))


if __name__ == "__main__":
    main()
