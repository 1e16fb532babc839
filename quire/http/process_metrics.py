"""The metrics of the process and of the service in it: files, memory, event loop, connections, backups.

Those of the process have the names that all of Prometheus' client libraries use, so that common boards show them.
"""

import math
import os
import resource
from collections.abc import Callable
from pathlib import Path

from quire.http.exposition import Family, Samples
from quire.server.service import Service

_PROC = Path("/proc/self")


def _gauge(name: str, text: str, value: Callable[[Service], float | None]) -> Family[Service]:
    """A gauge; absent where its value is None."""

    def samples(service: Service) -> Samples:
        known = value(service)
        return [] if known is None else [("", known)]

    return Family(name, "gauge", text, samples)


def _counter(name: str, text: str, value: Callable[[Service], float]) -> Family[Service]:
    return Family(f"{name}_total", "counter", text, lambda service: [("", value(service))])


def _open_files(_service: Service) -> float | None:
    try:
        return len(os.listdir(_PROC / "fd"))
    except OSError:  # not Linux
        return None


def _resident_bytes(_service: Service) -> float | None:
    try:
        return int((_PROC / "statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return None


def _lease(service: Service) -> float | None:
    until = service.lock.until
    return until - service.clock.monotonic() if math.isfinite(until) else None  # a store on this machine has none


def _cpu_seconds(_service: Service) -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


PROCESS_FAMILIES: list[Family[Service]] = [
    _gauge("process_open_fds", "Open files of the broker's process, connections included.", _open_files),
    _gauge("process_max_fds", "Limit of open files.", lambda _: resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    _gauge("process_resident_memory_bytes", "Memory of the process in bytes.", _resident_bytes),
    _counter("process_cpu_seconds", "Processor time of the process in seconds.", _cpu_seconds),
    _gauge("process_start_time_seconds", "When the broker started, in seconds since the epoch.",
           lambda service: service.started_at / 1000),
]  # fmt: skip

STANDBY: Family[Service] = _gauge(
    "quire_standby", "1 while the broker waits for its store; it has few other metrics then.",
    lambda service: not service.uses_store,
)  # fmt: skip

SERVICE_FAMILIES: list[Family[Service]] = [
    STANDBY,
    _gauge("quire_store_lease_seconds",
           "Until the lease of the store runs out; negative while the database server does not answer.", _lease),
    _counter("quire_connections_opened", "Connections that clients opened, those that ended included.",
             lambda service: service.connections_opened),
    _gauge("quire_loop_lag_seconds", "How late the event loop was at most in the last 30 seconds.",
           lambda service: service.ticker.lag.longest(service.clock.monotonic())),
    _gauge("quire_backup_age_seconds", "Time since the newest backup, or since the broker started without one.",
           lambda service: service.backups.age_seconds),
    _gauge("quire_backup_last_seconds", "How long the last backup took.",
           lambda service: service.backups.last_seconds),
    _counter("quire_backup_failures", "Backups that failed.", lambda service: service.backups.failures),
]  # fmt: skip
