"""Which clients there are, in which versions of STOMP."""

from dataclasses import dataclass

from tests.acceptance.clients.client import Client
from tests.acceptance.clients.stomp_py import StompPy
from tests.acceptance.clients.stompjs_client import Stompjs
from tests.acceptance.clients.stompman_client import Stompman

_CLASSES: dict[str, type[StompPy] | type[Stompman] | type[Stompjs]] = {
    "stomp.py": StompPy,
    "stompman": Stompman,
    "stompjs": Stompjs,
}


@dataclass(frozen=True)
class Kind:
    """A client library and a version of STOMP."""

    library: str  # its name
    version: str  # what it is to speak

    def __str__(self) -> str:
        return f"{self.library}-{self.version}"

    def connect(self, port: int, beat: int = 0) -> Client:
        return _CLASSES[self.library](port, self.version, beat)


KINDS = [
    *[Kind("stomp.py", version) for version in ("1.0", "1.1", "1.2")],
    Kind("stompman", "1.2"),
    *[Kind("stompjs", version) for version in ("1.0", "1.1", "1.2")],
]
NEWEST = [kind for kind in KINDS if kind.version == "1.2"]
"""One of each library."""
WITH_NACK = [kind for kind in KINDS if kind.version != "1.0"]
WITH_PLAIN_ACK = [kind for kind in KINDS if kind.library != "stompman"]
"""Those that acknowledge in transactions, and whatever they are told to acknowledge."""
