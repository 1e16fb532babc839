"""Settings: where values come from, and what is said about wrong ones."""

import tomllib
from pathlib import Path

import pytest

from quire.errors import InsecureAddress, InvalidSettings
from quire.settings import KEYS, Settings, broker_file, commented_file, explain, load, store_url


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "quire.toml"
    file.write_text(text)
    return file


def test_without_anything_the_defaults_hold() -> None:
    assert load(None, {}, {}) == Settings()
    assert {setting.origin for setting in explain(None, {}, {})} == {"default"}


def test_flag_stands_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = write(tmp_path, '[memory]\nlimit = "1MB"\n[policy]\nmemory_limit = "2MB"\n[broker]\nname = "from-file"\n')
    environ = {"QUIRE_MEMORY__LIMIT": "3MB", "QUIRE_POLICY__MEMORY_LIMIT": "4MB"}
    settings = load(file, environ, {"memory.limit": "5MB", "http.address": None})
    assert (settings.memory.limit, settings.policies.base.memory_limit) == (5_000_000, 4_000_000)
    assert settings.broker.name == "from-file"
    assert settings.http.address == "127.0.0.1:8161"


def test_explain_says_value_and_origin_of_every_key(tmp_path: Path) -> None:
    file = write(tmp_path, '[broker]\nname = "b"\n')
    settings = explain(file, {"QUIRE_INSECURE": "true", "PATH": "/bin"}, {"store.sync": "never"})
    found = {setting.key: (setting.value, setting.origin) for setting in settings}
    assert list(found) == list(KEYS)
    assert found["broker.name"] == ("b", f"file {file}")
    assert found["insecure"] == (True, "environment QUIRE_INSECURE")
    assert found["store.sync"] == ("never", "flag")
    assert found["producer.hold_limit"] == (30.0, "default")


def test_toml_may_use_numbers_and_booleans_of_its_own(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "insecure = true\n[stomp]\nmax_headers = 5\nmax_body = 1024\nconnect_timeout = 2.5\nheart_beat_grace = 3\n"
        "[policy]\nprocess_expired = false\nmaximum_redelivery_delay = -1\nmax_slow_duration = -1\n",
    )
    settings = load(file, {}, {})
    assert settings.insecure is True
    assert (settings.stomp.max_headers, settings.stomp.max_body) == (5, 1024)
    assert (settings.stomp.connect_timeout, settings.stomp.heart_beat_grace) == (2.5, 3.0)
    policy = settings.policies.base
    assert (policy.process_expired, policy.maximum_redelivery_delay, policy.max_slow_duration) == (False, -1.0, -1.0)


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ('[stomp]\nadress = "127.0.0.1:1"', "stomp.adress", "did you mean stomp.address?"),
        ('[stom]\naddress = "127.0.0.1:1"', "stom.address", "did you mean stomp.address?"),
        ("[queue]\nprefetch = 5", "queue.prefetch", "did you mean policy.queue_prefetch?"),
        ("queue_prefech = 5", "queue_prefech", "did you mean policy.queue_prefetch?"),
        ("[[policy]]\nmemory_limit = 5", "policy", "did you mean policies?"),
        ("[stomp.limits]\nmax_body = 5", "stomp.limits", "did you mean"),
        ("zzz = 1", "zzz", "quire config init -"),
    ],
)
def test_unknown_key_in_the_file_is_an_error_with_a_suggestion(tmp_path: Path, text: str, key: str, hint: str) -> None:
    with pytest.raises(InvalidSettings, match="is not a setting") as caught:
        load(write(tmp_path, text), {}, {})
    assert caught.value.data["key"] == key
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("QUIRE_STOMP__ADRESS", "did you mean stomp.address?"),
        ("QUIRE_STOMP_ADDRESS", "did you mean QUIRE_STOMP__ADDRESS, with two underscores?"),
        ("QUIRE_POLICY_MAXIMUM_REDELIVERIES", "did you mean QUIRE_POLICY__MAXIMUM_REDELIVERIES"),
        ("QUIRE_POLICIES__MEMORY_LIMIT", "did you mean policy.memory_limit?"),
    ],
)
def test_unknown_variable_is_an_error_with_a_suggestion(variable: str, hint: str) -> None:
    with pytest.raises(InvalidSettings, match=variable) as caught:
        load(None, {variable: "127.0.0.1:1"}, {})
    assert hint in str(caught.value)


def test_variables_of_the_command_line_are_no_settings() -> None:
    assert load(None, {"QUIRE_URL": "http://127.0.0.1:1", "QUIRE": "x"}, {}) == Settings()


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("broker.name", 5, "a text"),
        ("store.sync", "sometimes", "one of always, interval, never"),
        ("store.sync", ["always"], "one of always, interval, never"),
        ("memory.limit", "plenty", "a size"),
        ("memory.limit", "0", "at least 1"),
        ("memory.limit", "9" * 400, "a size"),
        ("memory.limit", -1, "a size"),
        ("memory.limit", True, "a size"),
        ("memory.limit", {"bytes": 1}, "a size"),
        ("stomp.connect_timeout", "soon", "a duration"),
        ("stomp.connect_timeout", 0, "at least 0.001 s"),
        ("stomp.max_headers", "5.5", "a whole number"),
        ("stomp.max_headers", 0, "at least 1"),
        ("stomp.max_headers", False, "a whole number"),
        ("stomp.heart_beat_grace", 0.5, "at least 1"),
        ("stomp.heart_beat_grace", "nan", "a number"),
        ("stomp.heart_beat_grace", "inf", "a number"),
        ("stomp.address", "127.0.0.1", "HOST:PORT"),
        ("stomp.address", "127.0.0.1:65536", "HOST:PORT"),
        ("stomp.address", "::1:61613", "HOST:PORT"),
        ("http.address", 8161, "HOST:PORT"),
        ("policy.dead_letter_queue", "", "the name of a queue"),
        ("policy.dead_letter_queue", "a\nb", "the name of a queue"),
        ("policy.dead_letter_queue", "DLQ.>", "the name of a queue"),
        ("policy.queue_prefix", "*.", "the beginning or the end"),
        ("policy.retry_delays", "1s " + "9" * 400 + "d", "durations such as"),
        ("policy.queue_suffix", ".>", "the beginning or the end"),
        ("policy.process_expired", "perhaps", "true or false"),
        ("policy.maximum_redeliveries", -2, "at least -1"),
        ("policy.maximum_redelivery_delay", -2, "or -1 for none"),
        ("policy.maximum_redelivery_delay", True, "or -1 for none"),
        ("policy.offline_durable_subscriber_timeout", 0, "at least 0.001 s, or -1 for none"),
        ("policy.collision_avoidance_factor", 1.5, "a number from 0 to 1"),
        ("policy.collision_avoidance_factor", "nan", "a number from 0 to 1"),
        ("policy.back_off_multiplier", 0.5, "at least 1"),
        ("virtual.virtual_topic_pattern", "a.>.b", "a pattern"),
        ("virtual.virtual_topic_prefix", "Consumer.*", "ends in a dot"),
        ("virtual.virtual_topic_prefix", ">.", "ends in a dot"),
        ("log.level", "loud", "one of debug"),
    ],
)
def test_wrong_value_is_an_error_that_names_key_value_and_what_is_allowed(
    key: str, value: object, allowed: str
) -> None:
    with pytest.raises(InvalidSettings) as caught:
        load(None, {}, {key: value})
    assert caught.value.data == {"key": key, "value": value, "origin": "flag"}
    assert str(caught.value).startswith(f"{key} = {value!r} (flag) is not allowed: ")
    assert allowed in str(caught.value)


def test_flag_that_is_no_setting_is_an_error() -> None:
    with pytest.raises(InvalidSettings, match=r"stomp\.port \(flag\) is not a setting"):
        load(None, {}, {"stomp.port": 1})


@pytest.mark.parametrize("content", [b"[stomp", b"\xff", b"a = 1\na = 2"])
def test_file_that_is_no_toml_is_an_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "quire.toml"
    file.write_bytes(content)
    with pytest.raises(InvalidSettings, match="cannot be read") as caught:
        load(file, {}, {})
    assert caught.value.data == {"file": str(file)}


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="No such file"):
        load(tmp_path / "none.toml", {}, {})


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.8.8.8:1", "localhost:0", "[::1]:1"])
def test_loopback_needs_no_leave(address: str) -> None:
    assert load(None, {}, {"stomp.address": address}).stomp.address == address


@pytest.mark.parametrize("address", ["0.0.0.0:1", ":1", "[::]:1", "192.0.2.1:1", "broker.example:1"])
@pytest.mark.parametrize("key", ["stomp.address", "http.address"])
def test_any_other_address_needs_insecure(key: str, address: str) -> None:
    with pytest.raises(InsecureAddress) as caught:
        load(None, {}, {key: address})
    assert caught.value.data == {"key": key, "address": address}
    assert load(None, {}, {key: address, "insecure": True}).insecure


def test_commented_file_changes_nothing_until_a_line_is_uncommented(tmp_path: Path) -> None:
    assert load(write(tmp_path, commented_file()), {}, {}) == Settings()


def test_commented_file_says_the_defaults() -> None:
    lines = [line[1:] if line.startswith("#") and line[1] != " " else line for line in commented_file().splitlines()]
    document = tomllib.loads("\n".join(lines))
    assert [len(document.pop(name)) for name in ("policies", "composites", "users", "rules")] == [1] * 4
    flat = {"insecure": document.pop("insecure")}
    flat |= {f"{section}.{name}": value for section, keys in document.items() for name, value in keys.items()}
    assert load(None, {}, flat) == Settings()
    assert list(flat) == list(KEYS)


def test_commented_entries_are_valid_examples(tmp_path: Path) -> None:
    lines = [line[1:] if line.startswith("#") and line[1] != " " else line for line in commented_file().splitlines()]
    settings = load(write(tmp_path, "\n".join(lines)), {}, {})
    assert [entry.pattern.text for entry in settings.policies.entries] == ["orders.>"]
    assert [str(composite.destination) for composite in settings.composites] == ["queue://orders"]
    assert [user.name for user in settings.users] == ["alice"]
    assert [str(rule) for rule in settings.rules] == ["file-1: allow user:alice read,write,create on queue://orders.>"]


def test_other_addresses_than_loopback_need_users_or_a_word(tmp_path: Path) -> None:
    flags: dict[str, object] = {"stomp.address": "0.0.0.0:61613", "store.data": str(tmp_path)}
    with pytest.raises(InsecureAddress):
        load(None, {}, flags)
    (tmp_path / "security.json").write_text('{"users": []}')
    with pytest.raises(InsecureAddress):
        load(None, {}, flags)
    (tmp_path / "security.json").write_text('{"users": [{"name": "alice"}]}')
    load(None, {}, flags)
    flags["store.data"] = str(tmp_path / "other")
    load(None, {}, flags | {"security.enabled": True})
    load(None, {}, flags | {"jwt.issuer": "https://issuer.example"})
    load(write(tmp_path, '[[users]]\nname = "alice"\n'), {}, flags)
    load(None, {}, flags | {"insecure": True})


def test_store_url_is_the_configured_one_or_lmdb_in_the_data_directory(tmp_path: Path) -> None:
    assert store_url(load(None, {}, {"store.url": "memory:"})) == "memory:"
    assert store_url(load(None, {}, {"store.data": str(tmp_path)})) == f"lmdb://{tmp_path}/store"
    assert store_url(Settings()) == f"lmdb://{Path.cwd()}/data/store"


def test_broker_file_is_in_the_data_directory() -> None:
    assert broker_file("d") == Path("d/broker.json")


@pytest.mark.parametrize(
    ("http", "bulk"),
    [("10.1.2.3:8161", "10.1.2.3:0"), ("[fd00::1]:80", "[fd00::1]:0"), (":8161", ":0"), ("localhost:0", "localhost:0")],
)
def test_the_bulk_server_listens_on_the_host_of_http_unless_told_otherwise(http: str, bulk: str) -> None:
    given = {"QUIRE_HTTP__ADDRESS": http, "QUIRE_INSECURE": "true"}
    assert load(None, given, {}).bulk.address == bulk
    assert load(None, {"QUIRE_INSECURE": "true"}, {"http.address": http}).bulk.address == bulk
    assert {found.origin for found in explain(None, given, {}) if found.key == "bulk.address"} == {"http.address"}
    own = given | {"QUIRE_BULK__ADDRESS": "127.0.0.1:7000"}
    assert load(None, own, {}).bulk.address == "127.0.0.1:7000"
    assert load(None, {}, {}).bulk.address == "127.0.0.1:0"


def test_the_processes_of_the_bulk_server_need_a_port_each() -> None:
    given = {"QUIRE_BULK__ADDRESS": "127.0.0.1:65534", "QUIRE_BULK__PROCESSES": "2"}
    assert load(None, given, {}).bulk.processes == 2
    with pytest.raises(InvalidSettings, match=r"bulk\.processes = 3 .* would be 65536"):
        load(None, given | {"QUIRE_BULK__PROCESSES": "3"}, {})
    assert load(None, {"QUIRE_BULK__PROCESSES": "3"}, {}).bulk.processes == 3
