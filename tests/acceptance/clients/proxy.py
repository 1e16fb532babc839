"""A network that can be cut: what connects to it is connected on to a broker."""

import socket
import struct
import threading
from types import TracebackType
from typing import Self

_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Passes connections on, with two threads each, until it is told to cut them. A context manager."""

    def __init__(self, target: int) -> None:
        self._target = target  # the broker's port
        self._passes = threading.Event()
        self._passes.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]  # where clients connect
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: object, *arguments: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._passes.wait()
            far = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [near, far]
            self._start(self._pass_on, near, far)
            self._start(self._pass_on, far, near)

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            _reset(source)
            _reset(sink)

    def hold(self) -> None:
        """Let new connections wait: the broker is going to be away."""
        self._passes.clear()

    def lead_to(self, target: int) -> None:
        self._target = target
        self._passes.set()

    def cut(self) -> None:
        sockets, self._sockets = self._sockets, []
        for connection in sockets:
            _reset(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()


def _reset(connection: socket.socket) -> None:
    """Close with a reset, and wake a thread that reads from it."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.shutdown(socket.SHUT_RD)
    except OSError:
        pass  # it is closed already
    connection.close()
