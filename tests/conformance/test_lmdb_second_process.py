"""An LMDB store in two processes: one reads while the other one writes."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from quire.message import Message
from quire.store.base import WriteBatch
from quire.store.lmdb import LmdbStore

pytestmark = pytest.mark.slow

MAP = 1 << 20
BODY = 10_000
COUNT = 2000

# Writes twenty times as much as its map can hold at first.
WRITER = f"""
import sys
import quire.store.lmdb as lmdb
from quire.message import Message
from quire.store.base import Sync, WriteBatch
lmdb.FIRST_MAP_SIZE = {MAP}
store = lmdb.LmdbStore(sys.argv[1], Sync.NEVER)
store.open()
for first in range(1, {COUNT}, 20):
    batch = WriteBatch()
    batch.lane(1).appends = [Message(n, b"x" * {BODY}) for n in range(first, first + 20)]
    store.apply(batch)
    if first == 1:
        print("ready", flush=True)
        sys.stdin.readline()
store.close()
"""

# Begins to read, and never ends.
READER = """
import sys
import time
import quire.store.lmdb as lmdb
store = lmdb.LmdbStore(sys.argv[1], readonly=True)
store.open()
with store.snapshot() as reader:
    reader.lane_state(1)
    print("ready", flush=True)
    time.sleep(600)
"""


def begun(program: str, place: Path) -> subprocess.Popen[str]:
    """Another process, which has said that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_threads_read_on_while_the_other_process_grows_the_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.store.lmdb.FIRST_MAP_SIZE", MAP)
    with begun(WRITER, tmp_path) as writer:
        store = LmdbStore(tmp_path, readonly=True)
        store.open()
        read: list[list[int]] = []

        def follow() -> None:
            found: list[int] = []
            while len(found) < COUNT:
                with store.snapshot() as reader:
                    for message in reader.page(1, len(found) + 1, 100 * BODY, 1000).messages:
                        assert len(message.content) == BODY
                        found.append(message.sequence)
            read.append(found)

        threads = [threading.Thread(target=follow) for _ in range(4)]
        for thread in threads:
            thread.start()
        writer.communicate("go\n")
        for thread in threads:
            thread.join()
        assert read == [list(range(1, COUNT + 1))] * 4
        assert store.environment.info()["map_size"] > 16 * MAP
        store.close()


def test_a_reader_that_was_killed_holds_nothing_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.store.lmdb.FIRST_MAP_SIZE", MAP)
    store = LmdbStore(tmp_path)
    store.open()
    append(store, 1)
    with begun(READER, tmp_path) as reader:
        reader.send_signal(signal.SIGKILL)
    for sequence in range(2, 400):
        append(store, sequence)
    assert store.environment.info()["map_size"] == MAP
    store.close()


def append(store: LmdbStore, sequence: int) -> None:
    """Store a message, and remove the one before it."""
    batch = WriteBatch()
    batch.lane(1).appends = [Message(sequence, b"x" * BODY)]
    batch.lane(1).removals = [sequence - 1]
    store.apply(batch)
