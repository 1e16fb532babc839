"""Users of a broker that read in bulk: each reads what the rules allow, over TLS, and a rule that changes counts."""

import base64
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.arrow.lanes import LaneRange
from quire.cli.api import Login
from quire.errors import AccessRefused, NotAuthenticated
from quire.settings import local_token_file
from quire.spark.online import Broker, Credentials
from tests.spark.running_broker import RunningBroker, running_broker

pytestmark = pytest.mark.slow

PASSWORD = "bob's password"
COUNT = 200
BODY = "x" * 100_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    program = "from quire.cli.main import main; main()"
    subprocess.run([sys.executable, "-c", program, "tls", "make", str(directory)], check=True, capture_output=True)
    return directory


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Path) -> Iterator[RunningBroker]:
    """One with a user, two streams that have the same messages, and a rule for one of them."""
    directory = tmp_path_factory.mktemp("broker")
    tls = {"TLS__CERTIFICATE": f"{authority}/server.pem", "TLS__KEY": f"{authority}/server.key"}
    with running_broker(directory, SECURITY__ENABLED="true", **tls) as broker:
        broker.api.login = Login(passcode=local_token_file(str(directory / "data")).read_text().strip())
        broker.api.call("POST", "/users", {"name": "bob", "roles": [], "password": PASSWORD})
        broker.api.call("POST", "/rules", {"subject": "user:bob", "allow": ["read"], "destination": "stream://open"})
        for stream in ("open", "closed"):
            broker.create(stream)
            broker.send(stream, COUNT, body=BODY)
        yield broker


def client(broker: RunningBroker, authority: Path, password: str = PASSWORD) -> Broker:
    """What reads as bob, over TLS."""
    header = "Basic " + base64.b64encode(f"bob:{password}".encode()).decode()
    credentials = Credentials(header, (authority / "ca.pem").read_text())
    return Broker(broker.url.replace("http://", "https://"), 60.0, 60.0, credentials)


def everything(broker: RunningBroker, stream: str) -> LaneRange:
    """All of a stream; the administrator knows its lane."""
    assert broker.api.login.header is not None
    admin = Broker(broker.url, 60.0, 60.0, Credentials(broker.api.login.header))
    (lane,) = [found.lanes[0] for found in admin.lanes("stream").destinations if found.name == stream]
    return LaneRange(f"stream://{stream}", 0, lane, 1, COUNT + 1)


def test_a_user_reads_what_the_rules_allow_and_sees_nothing_else(broker: RunningBroker, authority: Path) -> None:
    reader = client(broker, authority)
    assert [found.name for found in reader.lanes().destinations] == ["open"]
    assert sum([batch.num_rows for batch in reader.read(everything(broker, "open"), ["offset"])]) == COUNT
    closed = everything(broker, "closed")
    for disguised in (closed, closed._replace(destination="stream://open")):
        with pytest.raises(AccessRefused, match="may not read stream://closed"):
            list(reader.read(disguised, ["offset"]))
    with pytest.raises(AccessRefused):
        reader.links(closed.lane, 1, 10)
    with pytest.raises(AccessRefused):
        reader.offset_at(closed.lane, 0)


def test_a_wrong_password_is_not_tried_again_and_again(broker: RunningBroker, authority: Path) -> None:
    with pytest.raises(NotAuthenticated) as caught:
        client(broker, authority, "another password").lanes()
    assert "another" not in str(caught.value)


def test_a_right_that_is_taken_away_ends_a_read_that_is_under_way(broker: RunningBroker, authority: Path) -> None:
    batches = client(broker, authority).read(everything(broker, "open"), ["offset", "value"])
    next(batches)
    rule = broker.api.call("POST", "/rules", {"subject": "*", "deny": ["read"], "destination": "open"})
    with pytest.raises(AccessRefused, match="may not read stream://open"):
        list(batches)
    broker.api.call("DELETE", f"/rules/{rule['id']}")
    whole = client(broker, authority).read(everything(broker, "open"), ["offset"])
    assert sum([batch.num_rows for batch in whole]) == COUNT
