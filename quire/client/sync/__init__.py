"""The client without asyncio: the same names, each call waits. Every connection has a thread with an event loop.

That thread sends and checks heart-beats, so a handler may be busy for as long as it likes. Listeners are called in a
thread of their session. One thread uses a session at a time; in mode ``INDIVIDUAL`` several may receive, acknowledge
and reject.
"""

from quire.client.sync.browser import Browser
from quire.client.sync.connection import Connection, connect
from quire.client.sync.consumer import Consumer
from quire.client.sync.producer import Producer
from quire.client.sync.received_message import ReceivedMessage
from quire.client.sync.session import Session

__all__ = ["Browser", "Connection", "Consumer", "Producer", "ReceivedMessage", "Session", "connect"]
