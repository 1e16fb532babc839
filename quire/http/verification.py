"""Checks the store of a running broker, as an operation in the background, in a process of its own.

The process is ``python -m quire.http.verification``: it writes its progress and what it finds as JSON lines.
"""

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import PIPE, Process
from typing import Annotated

import msgspec

from quire.clock import Clock
from quire.errors import IllegalState, InvalidArgument, QuireError, StoreError
from quire.http.operations import Operation
from quire.logs import event
from quire.resources import doc
from quire.server.background import child_environment

NICENESS = 10  # how much less than the broker the check counts for the processor
MOST_SHOWN = 20  # how many findings are kept
LOOK = 0.5  # how often the check looks whether it is cancelled, in seconds


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of it."""

    records: int  # how many records it has checked so far
    finding: str = ""  # something that is wrong
    error: str = ""  # why the check ended early
    ended: bool = False  # whether it is through


class Verification(msgspec.Struct, frozen=True):
    """A check of the store that is through."""

    at: Annotated[int, doc("When it ended, in milliseconds since the epoch.")]
    seconds: Annotated[float, doc("How long it took.")]
    records: Annotated[int, doc("How many records it checked.")]
    findings: Annotated[int, doc("How many problems it found.")]
    first: Annotated[list[str], doc("The first twenty of them.")]


class StoreVerification:
    """The check of one store: one at a time, in a process of its own, so that no delivery waits for it."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.last: Verification | None = None
        self._url = url
        self._clock = clock
        self._runs = False

    def check(self) -> None:
        if self._url == "memory:":
            raise InvalidArgument("the store is in the broker's memory: there is nothing to check", argument="store")
        if self._runs:
            raise IllegalState("the store is being checked already: see the operations")

    async def run(self, operation: Operation, of: int) -> None:
        self._runs, began = True, self._clock.monotonic()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "quire.http.verification", stdin=PIPE, stdout=PIPE, env=child_environment()
        )
        try:
            assert process.stdin is not None
            process.stdin.write(self._url.encode() + b"\n")
            process.stdin.close()
            await self._follow(process, operation, of, began)
        finally:
            self._runs = False
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def _follow(self, process: Process, operation: Operation, of: int, began: float) -> None:
        findings: list[str] = []
        count, report = 0, Report(0)
        while not operation.is_cancelled and not report.ended:
            line = await self._line(process)
            if line is None:
                continue
            if not line:
                raise StoreError("the check of the store ended early: see the broker's log")
            report = msgspec.json.decode(line, type=Report)
            if report.error:
                raise StoreError(f"the store could not be checked: {report.error}")
            operation.progress(report.records, max(of, report.records))
            if report.finding:
                count += 1
                findings += [report.finding] if count <= MOST_SHOWN else []
        if report.ended:
            seconds = round(self._clock.monotonic() - began, 3)
            self.last = Verification(self._clock.now_ms(), seconds, report.records, count, findings)
            event("store.verified", f"the store was checked; problems: {count}", findings=count, records=report.records)

    async def _line(self, process: Process) -> bytes | None:
        """The next line; None if none came for a while."""
        assert process.stdout is not None
        try:
            return await asyncio.wait_for(process.stdout.readline(), LOOK)
        except TimeoutError:
            return None


def main() -> None:
    """Check the store whose URL is on standard input. It ends when the broker does not read its output any more."""
    from quire.store.maintenance.open_store import open_for_reading
    from quire.store.maintenance.verify import verify

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
