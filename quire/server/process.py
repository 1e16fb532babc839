"""The process of a broker: its event loop, its signals, and what it tells people and systemd (``sd_notify(3)``)."""

import asyncio
import json
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from quire import __version__
from quire.errors import QuireError, StoreLocked, StoreUnreachable
from quire.logs import configure, event
from quire.security.accounts import write_secret
from quire.security.authentication import FIRST_USER
from quire.server.service import HttpServer, Service, telling_of_files
from quire.settings import Settings, broker_file, local_token_file, store_url
from quire.store.base import Store, Sync
from quire.store.disk import PRIVATE
from quire.store.urls import store_for_url

BEATS = 4
"""How many signs of life are sent in the time after which systemd restarts the broker."""


class ServiceManager:
    """The service manager that started this process; without one, all calls do nothing."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        is_watched = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._limit = int(environ.get("WATCHDOG_USEC", "0")) / 1e6 if is_watched else 0.0
        self._beating: asyncio.TimerHandle | None = None

    def tell(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            event("service-manager.unreachable", f"systemd cannot be told {lines[0]}: {error}", logging.WARNING)

    def beat(self) -> None:
        if self._address and self._limit > 0:
            loop = asyncio.get_running_loop()
            self._tick(loop, loop.time())

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        """A loop that comes to this call late by half of the limit is not well, although it lives: it says nothing."""
        now = loop.time()  # read once: a loop that stands still from here on is late the next time
        late = now - due
        if late <= self._limit / 2:
            self.tell("WATCHDOG=1")
        else:
            text = f"no sign of life is sent to systemd: the event loop is {late:.1f} s late"
            event("service-manager.late", text, logging.WARNING, seconds=round(late, 1))
        due = now + self._limit / BEATS
        self._beating = loop.call_at(due, self._tick, loop, due)

    def end(self) -> None:
        if self._beating is not None:
            self._beating.cancel()


CLOSE_LIMIT = 2.0
"""How long a broker that begins again tries to give its lock back, in seconds."""


def run(
    settings: Settings, *, standby: bool, http: HttpServer | None = None,
    wrap: Callable[[Store], Store] | None = None, reload: Callable[[], Settings] | None = None,
) -> int:  # fmt: skip
    """Run a broker until SIGTERM or SIGINT; SIGHUP makes it read its policies, users and rules again."""
    configure(settings.log.format, settings.log.level)
    allow_connections()
    os.umask(PRIVATE)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        store = store_for_url(store_url(settings), Sync(settings.store.sync))
        runner.run(_main(Service(settings, wrap(store) if wrap else store, http, reload=reload), standby))
    return 0


async def _main(service: Service, standby: bool) -> None:
    loop = asyncio.get_running_loop()
    manager = ServiceManager(os.environ)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.ask_stop)
    if hasattr(signal, "SIGHUP"):
        loop.add_signal_handler(signal.SIGHUP, service.reload)
    try:
        await _take_and_serve(service, standby, manager)
    except (StoreLocked, StoreUnreachable) as error:
        if not standby or not service.uses_store:
            raise
        event("broker.restarted", f"{error}: this broker begins again as a standby", logging.WARNING, code=error.code)
        _begin_again(service)
    finally:
        await service.lock.stop()
        service.store.close()


async def _take_and_serve(service: Service, standby: bool, manager: ServiceManager) -> None:
    """Take the store, serve until the broker is to stop, and end; a lost store ends it without a clean stop."""

    def waits() -> None:
        manager.tell("READY=1", "STATUS=Standing by.")
        manager.beat()

    manager.tell("STATUS=Starting.")
    file, local_token = (path(service.settings.store.data) for path in (broker_file, local_token_file))
    with telling_of_files():
        if not await service.take_store(standby=standby, waits=waits) or service.is_stopping:
            return
        await service.start(lambda: _announce(service, file, local_token))
    manager.tell("READY=1", f"STATUS=Serving STOMP on {service.stomp_address}.")
    manager.beat()
    try:
        await service.wait()
    except StoreLocked:
        await service.abandon()
        raise
    else:
        manager.tell("STOPPING=1", "STATUS=Stopping.")
        await service.stop()
        event("broker.stopped", "Stopped. Everything confirmed is on disk.")
    finally:
        manager.end()
        file.unlink(missing_ok=True)
        local_token.unlink(missing_ok=True)


def _begin_again(service: Service) -> NoReturn:
    """Replace this process by a fresh one of the same number: nothing is left of what it knew of the store."""
    closing = threading.Thread(target=service.store.close, daemon=True)  # a lease that is still ours is given back
    closing.start()
    closing.join(CLOSE_LIMIT)
    sys.stdout.flush()
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606


def _announce(service: Service, file: Path, local_token: Path) -> None:
    """Say where it listens, to people and in a file that the command line reads, and how to log in."""
    _write_local_token(service, local_token)
    pid, stomp, openwire, http = os.getpid(), service.stomp_address, service.openwire_address, service.http_address
    try:
        facts = {"pid": pid, "stomp": stomp, "openwire": openwire, "http": http, "scheme": service.http_scheme}
        write_whole(file, json.dumps(facts))
    except OSError as error:
        text = f"{file} cannot be written: name this broker to the command line with --url. {error}"
        event("broker.unannounced", text, logging.WARNING, path=str(file))
    broker = service.broker
    messages = sum([queue.depth for queue in broker.queues.values()])
    event(
        "broker.started",
        f"Quire {__version__} is running.\n"
        f"  STOMP     {stomp}\n"
        f"  OpenWire  {openwire}\n"
        f"  HTTP      {service.http_scheme}://{http}\n"
        f"  store     {service.store_url} ({len(broker.queues)} queues, {messages} messages)\n"
        "Ctrl-C stops it.",
        version=__version__,
        store=service.store_url,
        queues=len(broker.queues),
        messages=messages,
        pid=pid,
        stomp=stomp,
        openwire=openwire,
        http=http,
    )
    _tell_first_login(service)


def _write_local_token(service: Service, file: Path) -> None:
    """Write what the command line on this machine logs in with, until the broker stops."""
    try:
        write_secret(file, service.security.accounts.local_token.encode())
    except QuireError as error:
        text = f"give the command line --user or --token, also on this machine: {error}"
        event("broker.unannounced", text, logging.WARNING, path=str(file))


def _tell_first_login(service: Service) -> None:
    """Say once how to log in to a broker that has just made its first user. A log is no place for a password."""
    password, service.first_password = service.first_password, None
    if password is None:
        return
    way = f"Its password is {password} and is shown only now." if sys.stdout.isatty() else "It has no known password."
    print(
        f"The broker made the user {FIRST_USER}, an administrator. {way}\n"
        f"On this machine, this sets another one: quire user passwd {FIRST_USER} --data {service.settings.store.data}",
        flush=True,
    )


def write_whole(file: Path, text: str) -> None:
    """Write a file that others see whole or not at all. The one before goes first: its space may be the only one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    fresh = file.with_suffix(".new")
    try:
        fresh.write_text(text)
        fresh.replace(file)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def allow_connections() -> None:
    """Raise the soft limit of open files to the hard one: each connection is a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
