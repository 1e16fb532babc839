"""Tells systemd how the broker is (``sd_notify(3)``): that it is ready, that it stops, that its event loop lives."""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

from quire.logs import event

BEATS = 4
"""How many signs of life are sent in the time after which systemd restarts the broker."""


class ServiceManager:
    """The service manager that started this process; without one, all calls do nothing.

    Args:
        environ: the environment: ``NOTIFY_SOCKET``, ``WATCHDOG_USEC``, ``WATCHDOG_PID``.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        is_watched = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._limit = int(environ.get("WATCHDOG_USEC", "0")) / 1e6 if is_watched else 0.0
        self._beating: asyncio.TimerHandle | None = None

    def tell(self, *lines: str) -> None:
        """Send a state, ``READY=1`` say."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            event("service-manager.unreachable", f"systemd cannot be told {lines[0]}: {error}", logging.WARNING)

    def beat(self) -> None:
        """Send signs of life from the event loop, from now on."""
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
        """Send no more signs of life."""
        if self._beating is not None:
            self._beating.cancel()
