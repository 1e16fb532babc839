"""Every way to prove who one is, at every door: the table of docs/security.md, as a broker with TLS answers."""

import asyncio
import base64
import json
import ssl
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from websockets.sync.client import connect as web_socket
from websockets.typing import Subprotocol

from quire.client.sync import connect
from quire.console.session import Access, BrokerApi
from quire.errors import QuireError
from quire.security.authentication import hashed
from quire.spark.online import Credentials
from quire.spark.online import answer as spark_answer
from quire.spark.options import Options, Use
from tests.docs.pages import ROOT
from tests.integration.test_tls import Secured, answer, quire

pytestmark = pytest.mark.slow

PASSWORD = "a password of alice"
ISSUER = "https://issuer.example"


class Shown(NamedTuple):
    """What a client shows; what is empty it does not."""

    user: str = ""
    password: str = ""
    bearer: str = ""
    certificate: str = ""


class Ways(Secured):
    """A broker, and what its user can show."""

    def __init__(self, directory: Path) -> None:
        key, tls = ed25519.Ed25519PrivateKey.generate(), directory / "tls"
        keys = {**json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key())), "kid": "one", "alg": "EdDSA"}
        (directory / "keys.json").write_text(json.dumps({"keys": [keys]}))
        more = f'[[users]]\nname = "alice"\ncertificates = ["CN=alice"]\nroles = ["monitor"]\n' \
               f'password_hash = "{hashed(PASSWORD)}"\n' \
               f'[jwt]\nissuer = "{ISSUER}"\nkeys = "{directory}/keys.json"\n'  # fmt: skip
        super().__init__(directory, f'client_ca = "{tls}/ca.pem"\nclient_certificates = "optional"', more)
        assert quire("tls", "make", str(tls), "--client", "alice").returncode == 0
        claims = {"iss": ISSUER, "sub": "alice", "roles": ["monitor"], "exp": time.time() + 3600}
        self.access_token = jwt.encode(claims, key, "EdDSA", headers={"kid": "one"})
        self.client = tls / "alice.pem"
        self.password_file = self.file("password", PASSWORD)

    def file(self, name: str, content: str) -> str:
        (self.directory / name).write_text(content)
        return str(self.directory / name)

    @property
    def url(self) -> str:
        host, port = self.address("http")
        return f"https://{host}:{port}"

    def token(self) -> str:
        login = ("--user", "alice", "--password-file", self.password_file)
        made = quire("token", "create", "--expires", "1h", "--url", self.url, "--tls-ca", str(self.ca), *login)
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    def context_of(self, shown: Shown) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        if shown.certificate:
            context.load_cert_chain(shown.certificate)  # one file has both
        return context


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    with Ways(tmp_path_factory.mktemp("ways")).running() as broker:
        assert isinstance(broker, Ways)
        yield broker


# The doors: each says whether what is shown makes one alice.


def _connect_frame(shown: Shown) -> bytes:
    lines = [f"login:{shown.user}"] * bool(shown.user) + [f"passcode:{shown.password}"] * bool(shown.password)
    return ("\n".join(["CONNECT", "accept-version:1.2", "host:x", *lines]) + "\n\n\0").encode()


def stomp(broker: Ways, shown: Shown) -> bool:
    with broker.encrypted("stomp", broker.context_of(shown)) as connection:
        return answer(connection, _connect_frame(shown), b"\0").startswith(b"CONNECTED")


def stomp_over_web_socket(broker: Ways, shown: Shown) -> bool:
    url, context = broker.url.replace("https", "wss") + "/stomp", broker.context_of(shown)
    with web_socket(url, subprotocols=[Subprotocol("v12.stomp")], ssl=context) as browser:
        browser.send(_connect_frame(shown).decode())
        return str(browser.recv(10)).startswith("CONNECTED")


def openwire(broker: Ways, shown: Shown) -> bool:
    host, port = broker.address("openwire")
    login: dict[str, Any] = {"user": shown.user or None, "password": shown.password or None}
    try:
        with connect(f"ssl://{host}:{port}", tls=broker.context_of(shown), **login):
            return True
    except QuireError:
        return False


def http(broker: Ways, shown: Shown) -> bool:
    pair = base64.b64encode(f"{shown.user}:{shown.password}".encode()).decode()
    said = f"Authorization: Bearer {shown.bearer}\r\n" if shown.bearer else ""
    said = f"Authorization: Basic {pair}\r\n" if shown.password else said
    request = f"GET /api/v1/whoami HTTP/1.1\r\nHost: localhost\r\n{said}Connection: close\r\n\r\n"
    with broker.encrypted("http", broker.context_of(shown)) as connection:
        return b'"name":"alice"' in answer(connection, request.encode(), b"}")


def command_line(broker: Ways, shown: Shown) -> bool:
    login = ["--token-file", broker.file("token", shown.bearer)] if shown.bearer else []
    login += ["--user", shown.user, "--password-file", broker.file("secret", shown.password)] if shown.user else []
    environment = {"QUIRE_TLS_CERTIFICATE": shown.certificate} if shown.certificate else {}
    there = ("--url", broker.url, "--tls-ca", str(broker.ca), "--output", "json")
    done = quire("whoami", *there, *login, **environment)
    return done.returncode == 0 and json.loads(done.stdout)["name"] == "alice"


def spark(broker: Ways, shown: Shown) -> bool:
    options = {"broker.url": broker.url, "destination": "orders", "tlsCa": str(broker.ca)}
    options |= {"bearerTokenFile": broker.file("token", shown.bearer)} if shown.bearer else {}
    options |= {"tlsCertificate": shown.certificate} if shown.certificate else {}
    if shown.user:
        options |= {"user": shown.user, "passwordFile": broker.file("secret", shown.password)}
    try:
        credentials = Credentials.of(Options.of(options, Use.WRITE))
        with spark_answer("GET", f"{broker.url}/api/v1/whoami", b"", 10, credentials) as answered:
            return bool(msgspec.json.decode(answered.read())["name"] == "alice")
    except QuireError:
        return False


def console(broker: Ways, shown: Shown) -> bool:
    async def log_in() -> bool:
        api = BrokerApi(broker.url)
        try:
            caller = await Access().log_in(api, shown.user, shown.password)
            return bool((await caller.call("GET", "/whoami"))["name"] == "alice")
        except QuireError:
            return False
        finally:
            await api.close()

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("QUIRE_TLS_CA", str(broker.ca))
        return asyncio.run(log_in())


Door = Callable[[Ways, Shown], bool]
DOORS: dict[str, Door] = {
    "STOMP": stomp, "WebSocket": stomp_over_web_socket, "OpenWire": openwire, "HTTP": http,
    "command line": command_line, "Spark": spark, "console": console,
}  # fmt: skip
PROOFS: dict[str, Callable[[Ways], str]] = {
    "password": lambda _: PASSWORD,
    "token": lambda broker: broker.token(),
    "access token": lambda broker: broker.access_token,
    "client certificate": lambda broker: str(broker.client),
}


def table() -> dict[tuple[str, str], str]:
    """The cells of the table by proof and door, as the page has it."""
    text = (ROOT / "docs" / "security.md").read_text("utf-8").partition("## Ways to log in")[2]
    lines = [line.strip("| \n").split(" | ") for line in text.splitlines() if line.startswith("|")]
    head, rows = lines[0], lines[2:6]
    return {(row[0], door): cell for row in rows for door, cell in zip(head[1:], row[1:], strict=True)}


def shown_as(proof: str, secret: str, cell: str) -> list[Shown]:
    """What a client shows: a cell that names several ways is about all of them."""
    if proof == "client certificate":
        return [Shown(certificate=secret)]
    ways = [Shown("alice", secret)] if "as password" in cell or proof == "password" else []
    return ways + [Shown(bearer=secret)] * ("as bearer" in cell)


def test_the_table_has_every_door_and_every_proof() -> None:
    assert set(table()) == {(proof, door) for proof in PROOFS for door in DOORS}
    assert [key for key, cell in table().items() if cell == "no"] == [("client certificate", "console")]


@pytest.mark.parametrize("proof", PROOFS)
def test_every_way_to_prove_who_one_is_works_at_every_door(broker: Ways, proof: str) -> None:
    secret = PROOFS[proof](broker)
    wrong = {"password": "wrong", "client certificate": ""}.get(proof, secret[:-5] + "xxxxx")
    for door, enter in DOORS.items():
        cell, attempt = table()[proof, door], partial(enter, broker)
        if cell == "no":
            continue
        ways = shown_as(proof, secret, cell)
        assert ways, (proof, door, cell)
        assert [attempt(shown) for shown in ways] == [True] * len(ways), (proof, door)
        assert not any(attempt(shown) for shown in shown_as(proof, wrong, cell)), (proof, door)


def test_the_command_line_beside_a_broker_shows_its_certificate_if_it_has_one(broker: Ways) -> None:
    """Else it is an administrator by the broker's file; with --data it is so in any case."""
    environment = {"QUIRE_TLS_CERTIFICATE": str(broker.client), "QUIRE_TLS_CA": str(broker.ca)}
    there = {**environment, "QUIRE_URL": broker.url, "QUIRE_STORE__DATA": str(broker.data)}
    names = [
        json.loads(quire("whoami", "--output", "json", *arguments, **given).stdout)["name"]
        for arguments, given in (((), there), (("--data", str(broker.data)), environment))
    ]
    assert names == ["alice", "$local"]
