"""``quire config``: a file that loads, a check that finds faults, an explanation without secrets."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from quire.settings import KEYS, Settings, load

Run = Callable[..., Result]


def test_init_writes_a_file_that_loads(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "quire.toml"
    assert run("config", "init", str(file)).output == f"wrote {file}\n"
    assert load(file, {}, {}) == Settings()
    assert run("config", "check", str(file)).output == "the settings are valid\n"


def test_init_writes_over_nothing_unless_forced(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "quire.toml"
    file.write_text("mine")
    result = run("config", "init", str(file))
    assert (result.exit_code, file.read_text()) == (2, "mine")
    assert "--force overwrites it" in result.stderr
    assert run("config", "init", str(file), "--force").exit_code == 0
    assert load(file, {}, {}) == Settings()


def test_init_where_nothing_can_be_written_is_an_error(run: Run, tmp_path: Path) -> None:
    result = run("config", "init", str(tmp_path / "none" / "quire.toml"))
    assert result.exit_code == 2
    assert "No such file or directory" in result.stderr


def test_init_prints_to_standard_output(run: Run) -> None:
    assert "[stomp]" in run("config", "init", "-").stdout


def test_check_finds_what_is_wrong(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "quire.toml"
    file.write_text("[stomp]\nadress = 1")
    result = run("config", "check", str(file))
    assert result.exit_code == 2
    assert "did you mean stomp.address?" in result.stderr
    monkeypatch.setenv("QUIRE_MEMORY__LIMIT", "x")
    assert "QUIRE_MEMORY__LIMIT" in run("config", "check").stderr
    assert run("config", "check", "--memory-limit", "x").exit_code == 2


FAULTY = """
unknown_key = 1
[broker]
foo = 1
[memory]
limit = "much"
[[policies]]
destination = "a"
maximum_redeliveries = "many"
foo = 1
[[policies]]
destination = "b.>.c"
[[users]]
name = "a b"
[[rules]]
subject = "nobody"
"""


def test_check_names_all_faults_at_once(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "quire.toml"
    file.write_text(FAULTY)
    monkeypatch.setenv("QUIRE_MEMORY_LIMIT", "1GB")
    result = run("config", "check", str(file), "--sync", "often")
    assert result.exit_code == 2
    faults = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    said = [
        "unknown_key", "broker.foo", "memory.limit", "QUIRE_MEMORY_LIMIT", "store.sync",
        "maximum_redeliveries", "foo (policy", "b.>.c", "a user needs", "subject",
    ]  # fmt: skip
    for word in said:
        assert any(word in line for line in faults), word
    assert len(faults) == len(said)


def test_explain_says_where_each_value_comes_from(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "quire.toml"
    file.write_text('[memory]\nlimit = "1MB"')
    monkeypatch.setenv("QUIRE_BROKER__NAME", "b")
    arguments = ["config", "explain", "--config", str(file), "--sync", "never"]
    rows = {row["key"]: (row["value"], row["origin"]) for row in json.loads(run(*arguments, "--output", "json").output)}
    assert list(rows) == list(KEYS)
    assert rows["memory.limit"] == (1_000_000, f"file {file}")
    assert rows["broker.name"] == ("b", "environment QUIRE_BROKER__NAME")
    assert rows["store.sync"] == ("never", "flag")
    lines = {tuple(line.split()[:2]) for line in run(*arguments).output.splitlines()}
    assert {("memory.limit", '"1MB"'), ("producer.hold_limit", '"30s"'), ("insecure", "false")} <= lines


POLICIES = """
[policy]
queue_prefetch = 5
[[policies]]
destination = "orders.>"
maximum_redeliveries = 2
maximum_redelivery_delay = "1m"
[[policies]]
destination = "topic://orders.>"
maximum_redeliveries = 3
"""


def test_explain_says_where_each_value_of_a_destination_s_policy_comes_from(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUIRE_POLICY__MEMORY_LIMIT", "1MB")
    file = tmp_path / "quire.toml"
    file.write_text(POLICIES)
    arguments = ["config", "explain", "orders.new", "--config", str(file)]
    rows = {row["key"]: (row["value"], row["origin"]) for row in json.loads(run(*arguments, "--output", "json").output)}
    assert list(rows) == [key for key in KEYS if key.startswith("policy.")]
    assert rows["policy.queue_prefetch"] == (5, f"file {file}")
    assert rows["policy.memory_limit"] == (1_000_000, "environment QUIRE_POLICY__MEMORY_LIMIT")
    assert rows["policy.maximum_redeliveries"] == (2, f"policy orders.> (file {file}, entry 1)")
    assert rows["policy.topic_prefetch"] == (32767, "default")
    lines = {tuple(line.split()[:2]) for line in run(*arguments).output.splitlines()}
    assert {("policy.maximum_redelivery_delay", '"1m"'), ("policy.maximum_redeliveries", "2")} <= lines
    arguments[2] = "topic://orders.new"
    assert f"policy topic://orders.> (file {file}, entry 2)" in run(*arguments, "--output", "json").output


def test_explain_takes_no_pattern_and_no_file_for_a_destination(run: Run, tmp_path: Path) -> None:
    result = run("config", "explain", "orders.>")
    assert (result.exit_code, "is not a name for a queue" in result.stderr) == (2, True)
    file = tmp_path / "quire.toml"
    file.write_text(POLICIES)
    result = run("config", "explain", str(file))
    assert (result.exit_code, f"--config {file}" in result.stderr) == (2, True)


def test_check_reads_policies_and_composites_too(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "quire.toml"
    file.write_text(POLICIES + "queue_prefech = 1")
    result = run("config", "check", str(file))
    assert result.exit_code == 2
    assert "did you mean queue_prefetch?" in result.stderr
    file.write_text('[[composites]]\nqueue = "a"\nforward_to = ["queue://a"]')
    assert "a composite destination forwards to other destinations" in run("config", "check", str(file)).stderr


@pytest.mark.parametrize("output", ["table", "json"])
def test_explain_hides_the_password_of_the_store(run: Run, output: str) -> None:
    url = "postgresql+psycopg://quire:secret@db.example/quire"
    text = run("config", "explain", "--store", url, "--output", output).output
    assert "secret" not in text
    assert "postgresql+psycopg://quire:***@db.example/quire" in text
