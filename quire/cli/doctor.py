"""``quire doctor``: examines settings, machine and broker, and says in words what to mend."""

import errno
import json
import os
import platform
import resource
import shutil
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import click

from quire import __version__
from quire.cli.api import Api, find_login
from quire.cli.config import setting_flags
from quire.cli.output import Output, output_option, printable
from quire.clock import Clock, SystemClock
from quire.errors import QuireError, StoreOutdated, StoreTooNew
from quire.settings import Settings, broker_file, load, security_file, split_address, store_url
from quire.store.maintenance.backups import KeptBackups
from quire.store.maintenance.open_store import open_for_reading
from quire.store.urls import shown, store_exists, store_path, stores_of
from quire.units import format_size

SIGNS = {"ok": "ok      ", "note": "note    ", "warning": "WARNING ", "problem": "PROBLEM "}


@click.command()
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="A settings file (TOML).")
@setting_flags
@output_option
@click.pass_context
def doctor(context: click.Context, file: Path | None, flags: dict[str, object]) -> None:
    """Examine settings, machine and broker, and say what to mend.

    Give the options of `broker start`. It works with the broker up or down. The exit code is 1 if there is a problem.
    """
    output = context.ensure_object(Output)
    from quire.store.disk import private_files

    try:
        findings = Examination(load(file, os.environ, flags), file=file).findings()
    except QuireError as error:
        findings = iter([Finding("settings", "problem", str(error), error.entry.advice)])
    with private_files():  # a look at a store writes to its lock file
        found = list(findings)
    output.texts(
        (finding._asdict() for finding in found),
        ["check", "state", "text", "advice"],
        lambda row: _line(row["check"], row["state"], row["text"], row["advice"]),
    )
    context.exit(1 if any([finding.state == "problem" for finding in found]) else 0)


def _line(check: str, state: str, text: str, advice: str) -> str:
    line = f"{SIGNS[state]}{check}: {printable(text)}"
    return f"{line}\n        what to do: {printable(advice)}" if advice else line


NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs"}
"""Where a lock or a memory map of another machine may not be seen."""

OWN_FILES = 200  # so many files a broker has open beside its connections
BASE_MEMORY = 50 << 20  # what the process takes beside resident messages, in bytes
SECONDS_AHEAD = 60  # a file that is younger than now by more than this many seconds was written with another clock
PATIENCE = 5.0  # how long the broker may take to answer, in seconds


class Finding(NamedTuple):
    check: str  # what was looked at
    state: str  # ok, note, warning or problem
    text: str  # what is there
    advice: str = ""  # what to do


class Examination:
    """Examines the place of one broker."""

    def __init__(self, settings: Settings, clock: Clock | None = None, file: Path | None = None) -> None:
        self._settings = settings
        self._file = file
        self._clock = clock or SystemClock()
        self._data = Path(settings.store.data).absolute()
        self._url = store_url(settings)
        self._facts: dict[str, Any] = {}  # where the running broker says that it listens

    def findings(self) -> Iterator[Finding]:
        looks: list[Callable[[], Iterator[Finding]]] = [
            self._versions, self._broker, self._ports, self._directory, self._privacy, self._disk, self._store,
            self._files, self._memory, self._time, self._backup,
        ]  # fmt: skip
        yield Finding("settings", "ok", "they are valid")
        for look in looks:
            yield from look()

    def _versions(self) -> Iterator[Finding]:
        libraries = ", ".join(f"{name} {version(name)}" for name in ("lmdb", "SQLAlchemy", "uvicorn"))
        yield Finding("versions", "ok", f"Quire {__version__}, Python {platform.python_version()}, {libraries}")
        if not sys.platform.startswith("linux"):
            text = f"Quire is tested on Linux, not on {sys.platform}"
            yield Finding("versions", "note", text, "Use Linux where messages matter.")

    def _broker(self) -> Iterator[Finding]:
        file = broker_file(str(self._data))
        try:
            self._facts = json.loads(file.read_text())
            url = f"http://{self._facts['http']}"
            api = Api(url, find_login(url, str(self._data), None, None, None))
        except FileNotFoundError:
            yield Finding("broker", "note", f"no broker runs on {self._data}")
            return
        except (OSError, ValueError, KeyError, TypeError, QuireError) as error:
            yield Finding("broker", "warning", f"{file} cannot be read: {error}", "Start the broker; it writes it.")
            return
        api.patience = PATIENCE
        try:
            status = api.call("GET", "/broker")
        except QuireError as error:
            yield self._silent(error)
            return
        yield from _running(status)

    def _silent(self, error: QuireError) -> Finding:
        pid = self._facts.get("pid")
        facts, self._facts = self._facts, {}
        try:
            os.kill(int(str(pid)), 0)
        except (ProcessLookupError, ValueError):
            text = f"the broker of process {pid} has ended without removing its file: it crashed, or was killed"
            return Finding("broker", "note", text, "Start it: nothing that it confirmed is lost.")
        except PermissionError:  # it runs, as another user
            pass
        self._facts = facts
        text = f"process {pid} is there, but does not answer: {error}"
        return Finding(
            "broker", "problem", text, "Read its log. If it hangs, end it with `kill -9` and start it again."
        )

    def _ports(self) -> Iterator[Finding]:
        settings = self._settings
        for name, address in (("stomp", settings.stomp.address), ("openwire", settings.openwire.address),
                              ("http", settings.http.address)):  # fmt: skip
            host, port = split_address(address)
            if self._facts.get(name, "").rpartition(":")[2] == str(port):
                yield Finding("ports", "ok", f"{name}: the broker listens on {address}")
            else:
                yield _port(name, address, host, port)

    def _directory(self) -> Iterator[Finding]:
        there = _existing(self._data)
        if not os.access(there, os.W_OK | os.X_OK):
            advice = f"Give user {os.getuid()} the right to write there, or choose another --data."
            yield Finding("data directory", "problem", f"{there} cannot be written", advice)
            return
        kind = _file_system(there)
        if kind in NETWORK_FILE_SYSTEMS:
            text = f"{there} is on a network file system ({kind}): locks and memory maps are not safe there"
            yield Finding("data directory", "problem", text, "Use a local disk, or a PostgreSQL store.")
            return
        exists = "" if there == self._data else ", it will be created"
        yield Finding("data directory", "ok", f"{self._data} can be written{exists}")

    def _privacy(self) -> Iterator[Finding]:
        """Whether other users of the machine can read or change what only the broker should."""
        settings = self._settings
        store = None if self._url == "memory:" else store_path(self._url)
        backups = Path(settings.backup.directory) if settings.backup.at else None
        key = settings.tls.key or settings.tls.certificate
        places = [self._data, store, security_file(settings), backups, Path(key) if key else None, self._file]
        found = [place for place in dict.fromkeys(places) if place is not None and _is_open(place)]
        for place in found:
            advice = f"As their owner: `chmod -R o= {place}`."
            yield Finding("privacy", "warning", f"other users of this machine can read {place}", advice)
        if not found:
            yield Finding("privacy", "ok", "only its own user can read the files of the broker")

    def _disk(self) -> Iterator[Finding]:
        store, limits = store_path(self._url) if self._url != "memory:" else None, self._settings.store
        place = _existing(self._data if store is None else store.absolute())
        usage = shutil.disk_usage(place)
        text = f"{format_size(usage.free)} of {format_size(usage.total)} are free on the disk of {place}"
        if usage.free < limits.disk_free_limit:
            text += f", less than store.disk_free_limit ({format_size(limits.disk_free_limit)}): producers are held"
            yield Finding("disk", "problem", text, "Free disk space.")
        elif store is not None and limits.limit > usage.total:
            text += f"; store.limit ({format_size(limits.limit)}) is more than that"
            yield Finding("disk", "note", text, "Lower store.limit to half of the disk: producers are held sooner.")
        else:
            yield Finding("disk", "ok", text)
        nodes = os.statvfs(place)
        if nodes.f_files and nodes.f_favail < 1000:
            yield Finding("disk", "warning", f"only {nodes.f_favail} inodes are free", "Remove small files.")

    def _store(self) -> Iterator[Finding]:
        if self._url == "memory:":
            text = "messages are in memory only, and lost with the process"
            yield Finding("store", "note", text, "Unset store.url to keep them.")
            return
        for url in stores_of(self._url):
            yield from self._one_store(url)

    def _one_store(self, url: str) -> Iterator[Finding]:
        place = shown(url)
        try:
            if not store_exists(url):
                yield Finding("store", "note", f"there is none at {place} yet; the broker creates it")
                return
            with open_for_reading(url) as (store, maintenance):
                count = len(store.destinations())
                yield Finding("store", "ok", f"{place} can be read; it has {count} destinations")
                yield from [Finding("database", *notice) for notice in maintenance.surroundings()]
        except StoreOutdated as error:
            yield Finding("store", "note", str(error), "The broker migrates it at its start, and keeps a backup.")
        except StoreTooNew as error:
            yield Finding("store", "problem", str(error), error.entry.advice)
        except QuireError as error:
            yield Finding("store", "problem", f"{place}: {error}", error.entry.advice)

    def _files(self) -> Iterator[Finding]:
        settings = self._settings
        limits = (settings.stomp, settings.openwire, settings.http)
        wanted = sum([each.max_connections for each in limits]) + OWN_FILES
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard != resource.RLIM_INFINITY and hard < wanted:
            text = f"{hard} files may be open; the limits of connections allow {wanted}"
            yield Finding("limits", "warning", text, "Raise the hard limit (LimitNOFILE= in systemd), or lower them.")
        else:
            yield Finding("limits", "ok", "enough files may be open for all connections")

    def _memory(self) -> Iterator[Finding]:
        there = _memory_bytes()
        wanted = self._settings.memory.limit + BASE_MEMORY
        text = f"the broker may take {format_size(wanted)} of {format_size(there)}"
        if wanted > there:
            yield Finding("memory", "problem", text, "Lower memory.limit: messages beyond it stay on disk.")
        elif wanted > there / 2:
            yield Finding("memory", "note", text, "Leave half to the system, which caches the store.")
        else:
            yield Finding("memory", "ok", text)

    def _time(self) -> Iterator[Finding]:
        now = self._clock.now_ms() / 1000
        newest = max([file.stat().st_mtime for file in _files_of(self._data)], default=0.0)
        if newest > now + SECONDS_AHEAD:
            text = (
                f"the broker has written files whose time is {newest - now:.0f} s ahead of the clock: it was set back"
            )
            advice = "Synchronise the clock (NTP): expirations, delays and retention go by it."
            yield Finding("clock", "warning", text, advice)
        else:
            yield Finding("clock", "ok", "it is not behind what the broker has written")

    def _backup(self) -> Iterator[Finding]:
        settings = self._settings.backup
        if not settings.at:
            yield Finding("backup", "note", "the broker makes none", "Set backup.at, or make them with other tools.")
            return
        there = _existing(Path(settings.directory).absolute())
        if not os.access(there, os.W_OK | os.X_OK):
            yield Finding("backup", "problem", f"{there} cannot be written", "Choose another backup.directory.")
            return
        newest = KeptBackups(Path(settings.directory)).newest_ms()
        age = None if newest is None else (self._clock.now_ms() - newest) / 3_600_000
        if age is not None and age > 26:
            yield Finding("backup", "warning", f"the newest is {age:.0f} hours old", "Read `backup.failed` in the log.")
        else:
            text = "there is none yet" if age is None else f"the newest is {age:.0f} hours old"
            yield Finding("backup", "ok", f"each day at {settings.at}; {text}")


def _running(status: dict[str, Any]) -> Iterator[Finding]:
    text = f"it runs, for {status['uptime_seconds']:.0f} s, with {status['connections']} connections"
    yield Finding("broker", "ok", text)
    if status["version"] != __version__:
        text = f"the broker is version {status['version']}, this command line {__version__}"
        yield Finding("versions", "warning", text, "Restart the broker, or use its own command line.")
    if status["store_error"] is not None:
        text = f"its store accepts no writes: {status['store_error']}"
        yield Finding("broker", "problem", text, "Check the disk or the database; the broker goes on by itself.")
    if (clock := status.get("clock_set")) is not None:  # a broker of an older version does not say
        advice = "Synchronise the clock (NTP), and let it be slewed: expirations, schedules and retention go by it."
        yield Finding("clock", "warning", f"while the broker ran, {clock}", advice)
    if held := status["producers_held"]:
        causes = ", ".join(sorted({each["cause"] for each in held}))
        yield Finding("broker", "warning", f"it holds {len(held)} producers: {causes}", "See `quire broker status`.")


def _port(name: str, address: str, host: str, port: int) -> Finding:
    if port == 0:
        return Finding("ports", "ok", f"{name}: the system chooses a port")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_STREAM)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            advice = "Stop that program, or choose another port." if in_use else f"Correct {name}.address."
            text = "another program listens there" if in_use else str(error.strerror)
            return Finding("ports", "problem", f"{name}: {address}: {text}", advice)
    return Finding("ports", "ok", f"{name}: {address} is free")


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _is_open(place: Path) -> bool:
    try:
        directory = place if place.is_dir() else place.parent
        files = _files_of(place) if place.is_dir() else [place]
        return bool(directory.stat().st_mode & stat.S_IXOTH) and any(
            [file.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH) for file in files]
        )
    except OSError:  # it is not there, or not to be read
        return False


def _files_of(directory: Path) -> list[Path]:
    found = [path for pattern in ("*", "*/*") for path in directory.glob(pattern)]
    return [path for path in found if path.is_file()]


def _file_system(path: Path) -> str:
    """The kind of the file system of a path; empty if the system does not tell."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    above = [str(each) for each in (path.resolve(), *path.resolve().parents)]
    return max(((len(place), kind) for place, kind in mounts if place in above), default=(0, ""))[1]


def _memory_bytes() -> int:
    """The memory that this process may have: that of the machine, or less in a container."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(there, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no container, or "max"
        return there
