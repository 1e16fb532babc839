"""What a broker is shown: read from files in the driver, carried to tasks, printed nowhere."""

import pickle
from pathlib import Path

import pytest

from quire.errors import InvalidArgument
from quire.spark.online import Credentials
from quire.spark.options import Options, Use

BROKER = {"broker.url": "https://127.0.0.1:8161", "destination": "orders"}
SECRET = "a secret 12345"


def credentials(**given: object) -> Credentials:
    return Credentials.of(Options.of({**BROKER, **{name: str(value) for name, value in given.items()}}, Use.WRITE))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret.txt"
    file.write_text(f"{SECRET}\nmore\n")
    return file


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USER", "PASSWORD_FILE", "TOKEN", "TLS_CA", "TLS_CERTIFICATE"):
        monkeypatch.delenv(f"QUIRE_{name}", raising=False)


def test_a_user_logs_in_with_the_first_line_of_a_file(secret: Path) -> None:
    assert credentials(user="bob", passwordFile=secret).authorization == "Basic Ym9iOmEgc2VjcmV0IDEyMzQ1"
    assert credentials(bearerTokenFile=secret).authorization == f"Bearer {SECRET}"
    assert credentials().authorization == ""


def test_the_environment_of_the_driver_does_too_and_options_come_first(
    secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUIRE_TOKEN", "from the environment")
    assert credentials().authorization == "Bearer from the environment"
    assert credentials(bearerTokenFile=secret).authorization == f"Bearer {SECRET}"
    monkeypatch.setenv("QUIRE_PASSWORD_FILE", str(secret))
    assert credentials(user="bob").authorization.startswith("Basic ")


def test_tasks_need_no_files_and_nothing_shows_what_they_had(secret: Path) -> None:
    found = credentials(user="bob", passwordFile=secret, tlsCa=secret, tlsCertificate=secret)
    secret.unlink()
    carried = pickle.loads(pickle.dumps(found))
    assert (carried, carried.authorities, carried.certificate) == (found, f"{SECRET}\nmore\n", f"{SECRET}\nmore\n")
    assert SECRET not in repr(found)
    assert found.authorization not in repr(found)
    assert found.without_login().authorization == ""


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"user": "bob"}, "give passwordFile too"),
        ({"passwordFile": "FILE"}, "give user too"),
        ({"user": "bob", "bearerTokenFile": "FILE"}, "exclude each other"),
        ({"bearerTokenFile": "/nowhere/token"}, "/nowhere/token: No such file"),
        ({"bearerTokenFile": "EMPTY"}, "begins with an empty line"),
        ({"tlsCa": "/nowhere/ca.pem"}, "the file of tlsCa cannot be read"),
    ],
)
def test_what_does_not_fit_is_explained(secret: Path, tmp_path: Path, given: dict[str, str], text: str) -> None:
    (tmp_path / "empty").write_text("\n")
    places = {"FILE": secret, "EMPTY": tmp_path / "empty"}
    with pytest.raises(InvalidArgument, match=text) as caught:
        credentials(**{name: places.get(value, value) for name, value in given.items()})
    assert SECRET not in str(caught.value)


def test_files_that_are_no_certificates_are_an_error_and_a_password_in_a_url_too(secret: Path) -> None:
    with pytest.raises(InvalidArgument, match="tlsCa or tlsCertificate cannot be used"):
        credentials(tlsCa=secret).context()
    with pytest.raises(InvalidArgument, match="without a user") as caught:
        Options.of({**BROKER, "broker.url": f"https://bob:{SECRET}@127.0.0.1:8161"}, Use.WRITE)
    assert SECRET not in str(caught.value)
