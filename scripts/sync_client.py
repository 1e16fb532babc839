"""Writes ``quire/client/sync.py``, the client without asyncio, from the client for asyncio; a test compares.

Signatures and docstrings are copied. A method runs the one of the client for asyncio in the thread of the connection,
and wraps what it returns, if that is an object of the client. What is not like that is in ``quire/client/threads.py``.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CLIENT = Path(__file__).parent.parent / "quire" / "client"
TARGET = CLIENT / "sync.py"

PUBLIC = {
    "ReceivedMessage": ("message", "MessageInThread"),
    "Browser": ("consumer", "InThread[AsyncBrowser]"),
    "Consumer": ("consumer", "InThread[AsyncConsumer]"),
    "Producer": ("producer", "InThread[AsyncProducer]"),
    "Session": ("connection", "SessionInThread"),
    "Connection": ("connection", "ConnectionInThread"),
}
"""The classes, their modules, and what they are made of."""

INTERNAL = {
    "Consumer": "browse dispatched nothing_there controlled interrupted resumed rollback note_finished "
    "take_for_listener listen fail end close_now",
    "Producer": "acknowledged resumed",
    "Session": "check_transacted failed interrupted resumed switch_optimizing_off",
    "Connection": "temporary delete_temporary unsubscribe ask session_closed report dispatched interrupted resumed "
    "failed",
}
"""What parts of the client call; all else without an underscore is the user's."""

ATTRIBUTES = {
    "Consumer": {"destination": "ClientDestination", "is_closed": "bool"},
    "Producer": {"destination": "ClientDestination | None"},
    "Connection": {"client_id": "str", "broker_name": "str"},
}

INHERITED = {("Session", "close"), ("Connection", "open"), ("Connection", "close")}

COPIED = ("__aenter__", "__aexit__", "__aiter__", "transaction")
"""What only calls public methods: its body is copied without its ``await``."""

WORDS = {
    "async def ": "def ", "async with ": "with ", "async for ": "for ", "await ": "", "__aenter__": "__enter__",
    "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__", "AsyncIterator": "Iterator",
    "asynccontextmanager": "contextmanager", "asyncio.Future[Response]": "concurrent.futures.Future[None]",
    "self.check_transacted": "self._inner.check_transacted",
    "a coroutine function, or a plain one that is quick": "a plain function, in the session's thread",
    "One task uses": "One thread uses",
}  # fmt: skip

HEAD = '''\
"""The client without asyncio: the same names, each call waits. Every connection has a thread with an event loop.

That thread sends and checks heart-beats, so a handler may be busy for as long as it likes. Listeners are called in a
thread of their session. One thread uses a session at a time; in mode ``INDIVIDUAL`` several may receive, acknowledge
and reject.

``scripts/sync_client.py`` writes this module: do not edit it.
"""

import concurrent.futures
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from quire.client.connection import OnError
from quire.client.connection import connect as async_connect
from quire.client.consumer import Browser as AsyncBrowser
from quire.client.consumer import Consumer as AsyncConsumer
from quire.client.destinations import ClientDestination, Queue, Stream, TemporaryQueue, TemporaryTopic
from quire.client.message import Body, Message, PropertyValue
from quire.client.options import PoliciesByDestination, RedeliveryPolicy
from quire.client.producer import WINDOW
from quire.client.producer import Producer as AsyncProducer
from quire.client.session_core import AckMode
from quire.client.threads import ConnectionInThread, InThread, MessageInThread, SessionInThread
from quire.clock import Clock

Listener = Callable[["ReceivedMessage"], None]
"""What a session calls with each message, one after the other, in a thread of the session."""

'''

Function = ast.FunctionDef | ast.AsyncFunctionDef


def generated() -> str:
    """The module."""
    parts = [HEAD]
    for name, (module, base) in PUBLIC.items():
        parts.append(_Source(module).class_text(name, base))
    parts.append(_Source("connection").connect_text())
    text = "\n\n".join(parts)
    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout


def _plain(text: str) -> str:
    for word, instead in WORDS.items():
        text = text.replace(word, instead)
    return text


class _Source:
    """A module of the client for asyncio."""

    def __init__(self, module: str) -> None:
        text = (CLIENT / f"{module}.py").read_text("utf-8")
        self._lines = text.splitlines()
        self._tree = ast.parse(text)

    def class_text(self, name: str, base: str) -> str:
        (node,) = [found for found in self._tree.body if isinstance(found, ast.ClassDef) and found.name == name]
        doc = ast.get_docstring(node, clean=False) or ""
        parts = [part for part in doc.split("\n\n") if not re.search("^    (Args|Attributes):|event loop", part)]
        about = _plain("\n\n".join(parts)).rstrip()
        text = [f"class {name}({base}):", f'    """{about}' + ("\n    " if "\n" in about else "") + '"""']
        for attribute, kind in ATTRIBUTES.get(name, {}).items():
            meaning = re.findall(rf"^        {attribute}: (.*)$", doc, re.MULTILINE)[-1]
            text += ["", "    @property", f"    def {attribute}(self) -> {kind}:",
                     f'        """{meaning[0].upper()}{meaning[1:].rstrip(".")}."""',
                     f"        return self._inner.{attribute}"]  # fmt: skip
        for member in self._public(node):
            if (name, member.name) not in INHERITED:
                text += ["", *self._member(member)]
        return "\n".join(text) + "\n"

    def connect_text(self) -> str:
        (node,) = [found for found in self._tree.body if isinstance(found, ast.FunctionDef) and found.name == "connect"]
        arguments = _arguments(node)
        return "\n".join([*self._head(node), f"    return Connection(async_connect({arguments}))"]) + "\n"

    def _public(self, node: ast.ClassDef) -> Iterator[Function]:
        kept = ("__aenter__", "__aexit__", "__aiter__", "__anext__")
        internal = INTERNAL.get(node.name, "").split()
        for member in node.body:
            if isinstance(member, Function) and (
                member.name in kept or not (member.name.startswith("_") or member.name in internal)
            ):
                yield member

    def _head(self, node: Function) -> list[str]:
        """Its signature and its docstring."""
        return _plain("\n".join(self._lines[node.lineno - 1 : node.body[0].end_lineno])).split("\n")

    def _member(self, node: Function) -> list[str]:
        head = self._head(node)
        if node.name in COPIED:
            body = self._lines[node.body[1].lineno - 1 : node.end_lineno]
            decorators = [f"    @{_plain(ast.unparse(found))}" for found in node.decorator_list]
            return [*decorators, *head, *_plain("\n".join(body)).split("\n")]
        if node.decorator_list:
            return ["    @property", *head, f"        return self._inner.{node.name}"]
        return [*head, *[f"        {line}" for line in _body(node)]]


def _body(node: Function) -> list[str]:
    """What runs a method of the client for asyncio, and wraps what it returns."""
    assert node.returns is not None
    returns = ast.unparse(node.returns)
    call = f"self._inner.{node.name}({_arguments(node)})"
    if node.name == "__anext__":
        return ["return ReceivedMessage(self._loop, self._loop.next(self._inner))"]
    if "asyncio.Future" in returns:
        return [f"return self._loop.confirmation({call})"]
    if isinstance(node, ast.AsyncFunctionDef):
        call = f"self._loop.run({call})"
    elif returns in PUBLIC:
        call = f"self._loop.call(lambda: {call})"
    if returns == "ReceivedMessage | None":
        return [f"message = {call}", "return None if message is None else ReceivedMessage(self._loop, message)"]
    if returns in PUBLIC:
        return [f"return {returns}(self._loop, {call})"]
    return [call if returns == "None" else f"return {call}"]


def _arguments(node: Function) -> str:
    """The arguments of a function, as they are passed on."""
    given = [_value(argument) for argument in node.args.args if argument.arg != "self"]
    return ", ".join(given + [f"{argument.arg}={_value(argument)}" for argument in node.args.kwonlyargs])


def _value(argument: ast.arg) -> str:
    assert argument.annotation is not None
    kind, name = ast.unparse(argument.annotation), argument.arg
    if "ReceivedMessage" in kind:
        return f"{name}.to_send() if isinstance({name}, ReceivedMessage) else {name}"
    return f"self._called({name}, ReceivedMessage)" if "Listener" in kind else name


if __name__ == "__main__":
    TARGET.write_text(generated(), "utf-8")
