"""A broker with users, rules and TLS, for measurements."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.rig import OwnBroker
from quire.cli.perf.load import Target
from quire.cli.tls import make_authority, make_client, make_server, write_pair
from quire.client.remote import CA
from quire.clock import SystemClock
from quire.security.authentication import hashed

USER = "victim"
PASSWORD = "benchmark"


class Fortress:
    """A broker with a user and a certificate, in a directory."""

    def __init__(self, directory: Path, store: str = "lmdb") -> None:
        now = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
        authority, foreign = make_authority(now), make_authority(now)
        self.ca, self.foreign = directory / "ca.pem", directory / "foreign.pem"
        write_pair(authority, self.ca, directory / "ca.key")
        write_pair(make_server(authority, ["127.0.0.1"], now, 1), directory / "server.pem", directory / "server.key")
        pair = directory / "foreign.key"
        write_pair(make_client(foreign, USER, now, 1), self.foreign, pair)
        self.foreign.write_bytes(self.foreign.read_bytes() + pair.read_bytes())
        file = directory / "quire.toml"
        file.write_text(
            f'[tls]\ncertificate = "{directory}/server.pem"\nkey = "{directory}/server.key"\n'
            f'client_ca = "{self.ca}"\nclient_certificates = "optional"\n'
            f'[[users]]\nname = "{USER}"\npassword_hash = "{hashed(PASSWORD)}"\n'
            f'[[rules]]\nsubject = "user:{USER}"\nallow = ["read", "write", "create"]\ndestination = "perf.>"\n'
        )
        self.broker = OwnBroker(directory, {"config": str(file), "store": store, "sync": "always"})

    @property
    def target(self) -> Target:
        return self.plain_target._replace(tls=True)

    @property
    def plain_target(self) -> Target:
        own = self.broker.target
        return Target(own.host, own.port, USER, PASSWORD)


@contextmanager
def trusting(ca: Path) -> Iterator[None]:
    os.environ[CA] = str(ca)
    try:
        yield
    finally:
        del os.environ[CA]
