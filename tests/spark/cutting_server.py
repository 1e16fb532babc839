"""A server between a reader and a bulk server, that spoils answers: it cuts them, or answers as something else."""

import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple, Self

import msgspec

from quire.spark.online import BulkAccess, BulkServer


class Answer(NamedTuple):
    status: int  # of HTTP
    content: bytes  # the whole of it
    sent: int  # how much of it is sent before the connection ends
    framing: str = "chunked"  # how its end is told: ``length``, ``chunked``, or ``close`` for not at all


Spoil = Callable[[str, bytes], Answer]
"""What becomes of an answer: its path and its content are given."""


def whole(path: str, content: bytes) -> Answer:
    return Answer(200, content, len(content))


class CuttingServer:
    """The server. It says that it is the bulk server, and passes on what it is asked."""

    def __init__(self, url: str) -> None:
        self._broker = url
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"  # of the broker
        self.also: list[str] = []  # further processes of the bulk server that what reads is told of
        self.spoil: Spoil = whole  # what becomes of the answers of the bulk server
        self.paths: list[str] = []  # what was asked of it

    def _handler(cutting) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def log_message(self, *_: object) -> None:
                pass

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                path = self.path.partition("?")[0]
                cutting.paths.append(path)
                self.close_connection = True
                if path == "/api/v1/bulk":
                    self._send(
                        cutting.spoil(
                            path, msgspec.json.encode(BulkAccess([BulkServer([cutting.url, *cutting.also], "token")]))
                        )
                    )
                else:
                    self._send(cutting.spoil(path, cutting.passed_on(self.command, self.path, body)))

            def _send(self, answer: Answer) -> None:
                self.send_response(answer.status)
                if answer.framing == "length":
                    self.send_header("content-length", str(len(answer.content)))
                elif answer.framing == "chunked":
                    self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                sent = answer.content[: answer.sent]
                is_whole = answer.sent >= len(answer.content)
                if answer.framing == "chunked":
                    sent = (b"%x\r\n" % len(answer.content)) + sent + (b"\r\n0\r\n\r\n" if is_whole else b"")
                self.wfile.write(sent)

        return Handler

    def passed_on(self, method: str, path: str, body: bytes) -> bytes:
        ask = urllib.request.Request(f"{self._broker}/api/v1/bulk", b"", method="POST")
        with urllib.request.urlopen(ask) as found:
            (access,) = msgspec.json.decode(found.read(), type=BulkAccess).servers
        target = access.urls[0] + path.replace("token=token", f"token={access.token}")
        try:
            with urllib.request.urlopen(urllib.request.Request(target, body or None, method=method)) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            return error.read()

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
