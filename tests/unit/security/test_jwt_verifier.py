import json
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from quire.errors import BrokerBusy, NotAuthenticated
from quire.security import Credentials, Proof
from quire.security import jwt_verifier as module
from tests.unit.security.security_rig import HERE, Later, Rig, accepted, secured, user

NOW = 1_700_000_000
CLAIMS = {"iss": "https://issuer.example", "aud": "quire", "sub": "carol", "exp": NOW + 60, "roles": ["monitor"]}


@cache
def private_key(name: str) -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def write_keys(file: Path, *names: str) -> None:
    keys = [json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(private_key(name).public_key())) for name in names]
    content = [{**key, "kid": name, "alg": "EdDSA"} for key, name in zip(keys, names, strict=True)]
    file.write_text(json.dumps({"keys": content}))


def signed(key: str = "one", kid: str | None = "one", **claims: Any) -> str:
    content = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return jwt.encode(content, private_key(key), "EdDSA", headers={} if kid is None else {"kid": kid})


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "keys.json"
    write_keys(file, "one")
    return file


def rig_of(keys: Path | str, **more: Any) -> Rig:
    network = more.pop("network", None)
    settings = {"issuer": "https://issuer.example", "audience": "quire", "keys": str(keys), **more}
    return Rig(secured([user("alice"), user("off", disabled=True)], jwt=settings), network=network)


def test_a_token_of_the_issuer_says_who_one_is_and_which_roles_one_has(keys: Path) -> None:
    rig = rig_of(keys)
    for credentials in (Credentials(token=signed()), Credentials("carol", signed()), Credentials("", signed(kid=None))):
        access = accepted(rig.show(credentials))
        assert (access.principal.name, access.principal.proof) == ("carol", Proof.JWT)
        assert access.principal.roles == {"monitor"}
    rig.advance(71)  # with the leeway for clocks
    assert access.ended is not None


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://another.example"}, {"aud": "another"}, {"aud": None}, {"exp": None}, {"exp": NOW - 60},
        {"nbf": NOW + 60}, {"sub": None}, {"sub": "$local"}, {"sub": "a:b"}, {"sub": "off"}, {"roles": {"a": 1}},
        {"exp": 1e400}, {"exp": "x"}, {"nbf": "x"}, {"roles": ["r"] * 101}, {"key": "another"},
    ],
    ids=str,
)  # fmt: skip
def test_all_other_tokens_are_refused(keys: Path, claims: dict[str, Any]) -> None:
    assert isinstance(rig_of(keys).show(Credentials(token=signed(**claims))), NotAuthenticated)


def test_a_token_is_not_for_another_login(keys: Path) -> None:
    assert isinstance(rig_of(keys).show(Credentials("alice", signed())), NotAuthenticated)


def test_only_the_algorithms_of_the_settings_count(keys: Path) -> None:
    assert isinstance(rig_of(keys, algorithms="RS256").show(Credentials(token=signed())), NotAuthenticated)
    rig = rig_of(keys)
    public = json.loads(keys.read_text())["keys"][0]["x"]
    for forged in (jwt.encode(CLAIMS, "", "none"), jwt.encode(CLAIMS, public.ljust(64), "HS256", {"kid": "one"})):
        assert isinstance(rig.show(Credentials(token=forged)), NotAuthenticated)
        rig.advance(5)


def test_a_key_of_another_kind_than_the_algorithm_is_refused(keys: Path) -> None:
    other = rsa.generate_private_key(65537, 2048)
    forged = jwt.encode(CLAIMS, other, "RS256", headers={"kid": "one"})
    assert isinstance(rig_of(keys).show(Credentials(token=forged)), NotAuthenticated)


def test_roles_may_be_a_text_and_claims_may_have_other_names(keys: Path) -> None:
    rig = rig_of(keys, name_claim="email", roles_claim="scope")
    access = accepted(rig.show(Credentials(token=signed(email="c@example", scope="monitor a,b x"))))
    assert access.principal.name == "c@example"
    assert access.principal.roles == {"monitor", "x"}


def test_an_unknown_key_makes_the_broker_read_the_keys_again_but_not_each_time(keys: Path) -> None:
    network = Later()
    rig = rig_of(keys, network=network)
    assert rig.show(Credentials(token=signed())) is None  # the keys are read first
    network.finish()
    accepted(rig.outcomes[-1])
    write_keys(keys, "one", "two")
    assert isinstance(rig.show(Credentials(token=signed("two", "two"))), NotAuthenticated)
    rig.advance(11)
    assert rig.show(Credentials(token=signed("two", "two"))) is None
    network.finish()
    accepted(rig.outcomes[-1])


def test_keys_are_read_again_from_time_to_time_and_kept_if_they_cannot_be_read(
    keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "quire")
    rig = rig_of(keys, refresh=20.0)
    accepted(rig.show(Credentials(token=signed())))
    keys.write_text("nonsense")
    for _ in range(2):
        rig.advance(21)
        accepted(rig.show(Credentials(token=signed(exp=NOW + 1000))))
    write_keys(keys, "two")
    rig.advance(21)
    assert isinstance(rig.show(Credentials(token=signed(exp=NOW + 1000))), NotAuthenticated)  # the key is gone
    assert ["cannot be read" in record.message for record in caplog.records if "keys of" in record.message] == [
        True, False,
    ]  # fmt: skip


@pytest.mark.parametrize("source", ["/nowhere/keys.json", "http://issuer.example/keys", "ftp://issuer.example/keys"])
def test_without_keys_no_token_counts(source: str) -> None:
    assert isinstance(rig_of(source).show(Credentials(token=signed())), NotAuthenticated)


def test_only_so_many_logins_wait_for_the_keys(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 1)
    network = Later()
    rig = rig_of(keys, network=network)
    assert rig.show(Credentials(token=signed())) is None
    assert isinstance(rig.show(Credentials(token=signed())), BrokerBusy)


def test_without_an_issuer_a_token_is_a_wrong_password(keys: Path) -> None:
    rig = Rig(secured([user("alice")]))
    assert isinstance(rig.show(Credentials("alice", signed()), HERE), NotAuthenticated)
    rig.advance(1)
    assert isinstance(rig.show(Credentials(token=signed()), HERE), NotAuthenticated)


def test_another_issuer_ends_the_connections_of_the_first(keys: Path) -> None:
    rig = rig_of(keys)
    access = accepted(rig.show(Credentials(token=signed())))
    rig.security.reload(secured([user("alice")], jwt={"issuer": "https://another.example", "keys": str(keys)}))
    assert access.ended is not None
