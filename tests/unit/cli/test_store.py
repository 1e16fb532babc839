"""``quire store``: every verb, on an LMDB store in a data directory and on an SQLite file."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from quire.cli import store as module
from quire.message import Message
from quire.store.base import StoredDestination, WriteBatch, newest_format
from quire.store.disk import FileLock
from quire.store.maintenance.open_store import open_for_writing
from tests.samples import make_version_1 as sample
from tests.unit.store.maintained import LEFT, fill, lines
from tests.unit.store.tampering import tampering_for

Run = Callable[..., Result]


class Place:
    """A filled store and how the command line names it."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.directory = directory
        self.url = f"lmdb://{directory}/data/store" if kind == "lmdb" else f"sqlite://{directory}/store.db"
        self.options = ["--data", str(directory / "data")] if kind == "lmdb" else ["--store", self.url]
        self.lock = directory / ("data/store/lock" if kind == "lmdb" else "store.db.lock")
        self.kind = kind


@pytest.fixture(params=["lmdb", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    for variable in ("QUIRE_STORE__URL", "QUIRE_STORE__DATA"):
        monkeypatch.delenv(variable, raising=False)
    place = Place(request.param, tmp_path)
    with open_for_writing(place.url, create=True) as opened:
        fill(opened.store)
    return place


def answer(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.output)
    return found


def test_info(run: Run, place: Place) -> None:
    found = answer(run("store", "info", *place.options, "--output", "json"))
    assert found["url"] == place.url
    assert found["format"] == newest_format(place.url)
    assert (found["destinations"], found["lanes"], found["messages"]) == (2, 2, len(LEFT))
    assert found["lock_owner"] is None
    assert "Messages" not in run("store", "info", *place.options).output


def test_ls(run: Run, place: Place) -> None:
    rows = [json.loads(line) for line in run("store", "ls", *place.options, "--output", "ndjson").output.splitlines()]
    assert [(row["destination"], row["lane"], row["count"]) for row in rows] == [
        ("queue://orders", 1, len(LEFT)),
        ("queue://empty", 2, 0),
    ]
    assert (rows[0]["head"], rows[0]["tail"], rows[0]["next_sequence"], rows[0]["dispatch_mark"]) == (1, 39, 41, 10)


def test_show(run: Run, place: Place) -> None:
    found = answer(run("store", "show", "orders", "5", *place.options, "--output", "json"))
    assert found["headers"] == {"message-id": "m-5", "timestamp": "1700000000000"}
    assert (found["body"], found["encoding"]) == ("\x05" * 15, "text")
    assert found["delivery"] == {"deliveries": 2, "failures": 1, "not_before": 1_800_000_000_000, "cause": "nack"}
    assert run("store", "show", "orders", "3", *place.options).exit_code == 3
    assert run("store", "show", "nobody", "5", *place.options).exit_code == 3


def test_links(run: Run, place: Place) -> None:
    result = run("store", "links", "orders", "5", "--around", "1", *place.options, "--output", "csv")
    assert [line.split(",")[:3] for line in result.output.splitlines()] == [
        ["previous", "sequence", "next"],
        ["1", "2", "5"],
        ["2", "5", "6"],
        ["5", "6", "7"],
    ]


def test_verify_says_ok(run: Run, place: Place) -> None:
    result = run("store", "verify", *place.options)
    assert (result.exit_code, result.output) == (0, "ok\n")
    assert answer_list(run("store", "verify", *place.options, "--output", "json")) == []


def answer_list(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    found: list[dict[str, object]] = json.loads(result.output)
    return found


def test_verify_names_what_is_wrong_and_repair_mends_it(run: Run, place: Place) -> None:
    tampering_for(place.url).set_link(10, next=12)
    result = run("store", "verify", *place.options)
    assert result.exit_code == 1
    assert result.stdout == "queue://orders: broken-next: record 10: next is 12; by the records it is 11\n"
    assert "quire store repair" in result.stderr
    programs = run("store", "verify", *place.options, "--output", "ndjson")
    assert (programs.exit_code, json.loads(programs.output)["problem"]) == (1, "broken-next")

    assert run("store", "repair", *place.options).output == "repaired: relinked 1\n"
    assert run("store", "verify", *place.options).output == "ok\n"
    assert run("store", "repair", *place.options).output == "nothing had to be repaired\n"


def test_repair_says_where_damaged_records_are(run: Run, place: Place) -> None:
    tampering_for(place.url).damage_content(6)
    file = Path(str(answer(run("store", "repair", *place.options, "--output", "json"))["damaged_file"]))
    assert file.parent == Path(place.url.partition("://")[2]).parent
    assert json.loads(file.read_text())["sequence"] == 6


def test_verify_shows_its_progress_to_people(run: Run, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "on_terminal", lambda _: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # Rich looks for itself, at both
    monkeypatch.setenv("TERM", "xterm")
    result = run("store", "verify", *place.options)
    assert (result.exit_code, result.stdout) == (0, "ok\n")
    assert "verify" in result.stderr


def test_export_and_import(run: Run, place: Place, tmp_path: Path) -> None:
    exported = run("store", "export", *place.options)
    assert exported.stdout.splitlines() == lines(place.url)
    file = str(tmp_path / "export.ndjson")
    assert run("store", "export", file, *place.options).exit_code == 0
    other = ["--store", f"sqlite://{tmp_path}/other.db"]
    assert run("store", "import", file, *other).output == "imported 36 messages\n"
    assert run("store", "export", *other).stdout == exported.stdout
    again = run("store", "import", *other, stdin=exported.stdout.encode())
    assert again.exit_code == 4
    assert "destination-exists" in again.stderr


def test_import_of_something_else_names_the_line(run: Run, place: Place) -> None:
    result = run("store", "import", *place.options, stdin=b"hello\n")
    assert result.exit_code == 2
    assert "line 1" in result.stderr


def test_compact(run: Run, place: Place) -> None:
    before = lines(place.url)
    sizes = answer(run("store", "compact", *place.options, "--output", "json"))
    assert int(str(sizes["after"])) <= int(str(sizes["before"]))
    assert lines(place.url) == before


def test_backup_and_restore(run: Run, place: Place, tmp_path: Path) -> None:
    before = lines(place.url)
    target = str(tmp_path / "backup")
    assert run("store", "backup", target, *place.options).exit_code == 0
    assert run("store", "backup", target, *place.options).exit_code == 2
    tampering_for(place.url).set_state(count=1)
    refused = run("store", "restore", target, *place.options)
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert run("store", "restore", target, "--force", "--yes", *place.options).exit_code == 0
    assert lines(place.url) == before
    assert run("store", "verify", *place.options).exit_code == 0


def test_a_backup_that_cannot_be_written_is_an_error(run: Run, place: Place, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("store", "backup", str(tmp_path / "file" / "backup"), *place.options)
    assert result.exit_code == 1
    assert "store-failed" in result.stderr


@pytest.mark.parametrize("verb", [["repair"], ["compact"], ["import"], ["restore", "SOURCE", "--force"], ["migrate"]])
def test_what_writes_is_refused_while_a_broker_runs(run: Run, place: Place, verb: list[str], tmp_path: Path) -> None:
    assert run("store", "backup", str(tmp_path / "source"), *place.options).exit_code == 0
    verb = [str(tmp_path / "source") if word == "SOURCE" else word for word in verb]
    if verb == ["migrate"]:
        old(place)
    lock = FileLock(place.lock)
    assert lock.acquire("the broker")
    try:
        result = run("store", *verb, *place.options, stdin=b"")
    finally:
        lock.release()
    assert result.exit_code == 4
    assert "the broker" in result.stderr


@pytest.mark.parametrize("verb", [["info"], ["ls"], ["show", "orders", "5"], ["links", "orders", "5"], ["verify"]])
def test_what_reads_works_while_a_broker_runs(run: Run, place: Place, verb: list[str]) -> None:
    lock = FileLock(place.lock)
    assert lock.acquire("the broker")
    try:
        assert run("store", *verb, *place.options).exit_code == 0
    finally:
        lock.release()


def old(place: Place) -> None:
    """Put the sample of format 1 in the store's place."""
    path = Path(place.url.partition("://")[2])
    if place.kind == "lmdb":
        shutil.rmtree(path)
        shutil.copytree(sample.LMDB, path)
    else:
        for file in path.parent.glob("store.db*"):
            file.unlink()
        shutil.copy(sample.SQLITE, path)


def test_migrate(run: Run, place: Place) -> None:
    old(place)
    refused = run("store", "verify", *place.options)
    assert refused.exit_code == 4
    assert "quire store migrate" in refused.stderr
    dry = run("store", "migrate", "--dry-run", *place.options)
    assert dry.output.startswith(f"would migrate from format 1 to {newest_format(place.url)}: Every record gets")
    done = answer(run("store", "migrate", *place.options, "--output", "json"))
    assert (done["found"], done["current"], done["dry_run"]) == (1, newest_format(place.url), False)
    assert Path(str(done["backup"])).exists()
    assert run("store", "verify", *place.options).output == "ok\n"
    again = run("store", "migrate", *place.options).output
    assert again == f"the store has the current format, {newest_format(place.url)}\n"


def test_no_store_is_told_apart_from_an_empty_one(run: Run, tmp_path: Path) -> None:
    result = run("store", "verify", "--data", str(tmp_path / "none"))
    assert result.exit_code == 5
    assert "no store" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def shards(run: Run, place: Place) -> Place:
    """A store that was divided among three shards, of which the last one has another queue."""
    data = ["--data", str(place.directory / "data")]
    assert "3 shards" in run("store", "split", "--shards", "3", *place.options, *data).output
    for shard in (1, 2):
        with open_for_writing(local_shard(place, shard), create=True) as opened:
            if shard == 2:
                batch = WriteBatch()
                batch.destinations[1] = StoredDestination(1, "queue", "late", {}, (1,))
                batch.lane(1).appends.append(Message(1, b"message-id:m-1\n\nlate"))
                opened.store.apply(batch)
    return place


def local_shard(place: Place, shard: int) -> str:
    if place.kind == "lmdb":
        return f"lmdb://{place.directory}/data/shard-{shard}/store"
    return f"sqlite://{place.directory}/store.db-shard-{shard}"


def test_the_stores_of_shards_are_shown_as_one(run: Run, shards: Place) -> None:
    found = answer(run("store", "info", *shards.options, "--output", "json"))
    assert (found["shards"], found["destinations"], found["messages"]) == (3, 3, len(LEFT) + 1)
    assert found["stores"] == [
        answer(run("store", "info", *shards.options, "--shard", str(shard), "--output", "json")) | {"shard": shard}
        for shard in range(3)
    ]
    rows = [json.loads(line) for line in run("store", "ls", *shards.options, "--output", "ndjson").output.splitlines()]
    assert [(row["destination"], row["shard"]) for row in rows] == [
        ("queue://orders", 0), ("queue://empty", 0), ("queue://late", 2)
    ]  # fmt: skip
    assert answer(run("store", "show", "late", "1", *shards.options, "--output", "json"))["body"] == "late"
    assert run("store", "show", "nowhere", "1", *shards.options).exit_code == 3


def test_the_stores_of_all_shards_are_verified_and_backed_up(run: Run, shards: Place, tmp_path: Path) -> None:
    assert run("store", "verify", *shards.options).exit_code == 0
    assert run("store", "backup", str(tmp_path / "copies"), *shards.options).exit_code == 0
    assert sorted(file.name for file in (tmp_path / "copies").glob("shard-?")) == ["shard-0", "shard-1", "shard-2"]
    tampering_for(local_shard(shards, 2)).damage_content(1)
    result = run("store", "verify", *shards.options, "--output", "ndjson")
    assert (result.exit_code, {json.loads(line)["shard"] for line in result.stdout.splitlines()}) == (1, {2})


def test_what_is_done_to_one_store_asks_which_shard_is_meant(run: Run, shards: Place) -> None:
    result = run("store", "export", *shards.options)
    assert result.exit_code == 2
    assert "--shard 0 to 2" in result.output
    assert "late" in run("store", "export", "--shard", "2", *shards.options).output
    assert run("store", "export", "--shard", "3", *shards.options).exit_code == 2
