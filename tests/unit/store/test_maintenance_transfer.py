import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.errors import DestinationExists, InvalidArgument
from quire.message import Message
from quire.store.base import Delivery, StoredDestination, WriteBatch, walk_producers
from quire.store.maintenance.open_store import open_for_writing
from quire.store.maintenance.transfer import dump, import_lines, load, message_line, read_message
from quire.store.memory import MemoryStore
from tests.unit.store.maintained import LEFT, fill, findings, lines

HEAD = dump({"type": "quire-export", "version": 1})
ORDERS = dump({"type": "destination", "id": 1, "kind": "queue", "name": "orders", "settings": {}, "lanes": [1]})


def opened_memory() -> MemoryStore:
    store = MemoryStore()
    store.open()
    return store


@pytest.mark.parametrize(("source", "target"), [("lmdb", "sqlite"), ("sqlite", "lmdb")])
def test_an_export_imported_elsewhere_exports_the_same(tmp_path: Path, source: str, target: str) -> None:
    old, new = f"{source}://{tmp_path}/old", f"{target}://{tmp_path}/new"
    with open_for_writing(old, create=True) as opened:
        fill(opened.store)
    exported = lines(old)
    with open_for_writing(new, create=True) as opened:
        report = import_lines(opened.store, exported)
    assert report.messages == len(LEFT)
    assert report.destinations == 2
    assert findings(new) == []
    assert lines(new) == exported


@pytest.mark.parametrize("long", ["p" * 500, "p" * 439 + "\u00e9" * 40])
def test_the_number_of_a_producer_whose_id_fits_no_key_is_kept(tmp_path: Path, long: str) -> None:
    with open_for_writing(f"lmdb://{tmp_path}/old", create=True) as opened:
        opened.store.apply(WriteBatch(producers={long: 9}))
    exported = [line.encode().decode() for line in lines(f"lmdb://{tmp_path}/old")]
    with open_for_writing(f"sqlite://{tmp_path}/new", create=True) as opened:
        import_lines(opened.store, exported)
        assert opened.store.producer(long) == 9


def test_an_import_comes_beside_what_is_there(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/store"
    with open_for_writing(url, create=True) as opened:
        fill(opened.store)
    renamed = [line.replace('"name":"orders"', '"name":"orders-2"') for line in lines(url)]
    renamed = [line.replace('"name":"empty"', '"name":"empty-2"') for line in renamed]
    with open_for_writing(url) as opened:
        import_lines(opened.store, renamed)
        found = [(owner.id, owner.name, owner.lanes) for owner in opened.store.destinations()]
        assert opened.store.lane_state(3) == opened.store.lane_state(1)
    assert found == [(1, "orders", (1,)), (2, "empty", (2,)), (3, "orders-2", (3,)), (4, "empty-2", (4,))]
    assert findings(url) == []


def test_a_destination_that_is_there_is_refused() -> None:
    store = opened_memory()
    import_lines(store, [HEAD, ORDERS])
    with pytest.raises(DestinationExists):
        import_lines(store, [HEAD, ORDERS])


@pytest.mark.parametrize(
    ("wrong", "number"),
    [
        ([], None),
        (["{}"], 1),
        (["no JSON"], 1),
        (["[]"], 1),
        ([dump({"type": 7})], 1),
        ([dump({"type": "quire-export", "version": 2})], 1),
        ([ORDERS], 1),
        ([HEAD, dump({"type": "unheard-of"})], 2),
        ([HEAD, ORDERS, dump({"type": "message", "lane": 2})], 3),
        ([HEAD, ORDERS, dump({"type": "message", "lane": 1, "sequence": 1})], 3),
        ([HEAD, ORDERS, dump({"type": "producer", "producer": "p", "sequence": "many"})], 3),
        ([HEAD, ORDERS, dump({"type": "mark", "key": "k", "value": "?"})], 3),
        ([HEAD, dump({"type": "destination", "id": 1})], 2),
    ],
)
def test_a_line_that_cannot_be_read_is_named(wrong: list[str], number: int | None) -> None:
    with pytest.raises(InvalidArgument) as raised:
        import_lines(opened_memory(), wrong)
    assert raised.value.data.get("line") == number


def test_readable_content_is_exported_readably() -> None:
    line = message_line(1, Message(7, b"message-id:a\\cb\nx:1:2\n\nh\xc3\xa9"), Delivery(1, cause="nack"))
    assert json.loads(dump(line)) == {
        "type": "message",
        "lane": 1,
        "sequence": 7,
        "priority": 4,
        "expiration": 0,
        "delivery": {"deliveries": 1, "failures": 0, "not_before": 0, "cause": "nack"},
        "headers": [["message-id", "a\\cb"], ["x", "1:2"]],
        "encoding": "text",
        "body": "hé",
    }


@given(
    st.lists(
        (st.binary(max_size=20) | st.text(max_size=20).map(lambda text: b"name:" + text.encode()))
        .map(lambda line: line.replace(b"\n", b""))
        .filter(bool),
        min_size=1,
    ),
    st.binary(max_size=50) | st.text().map(str.encode),
)
def test_any_content_survives_to_the_byte(head: list[bytes], body: bytes) -> None:
    message = Message(1, b"\n".join(head) + b"\n\n" + body, expiration=5, priority=9)
    again = read_message(load(dump(message_line(1, message, None)), 1))
    assert again.content == message.content
    assert (again.sequence, again.expiration, again.priority) == (1, 5, 9)


@pytest.mark.slow
@settings(max_examples=15)
@given(st.data())
def test_any_history_survives_the_way_through_three_stores(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    place = tmp_path_factory.mktemp("history")
    urls = [f"lmdb://{place}/1", f"sqlite://{place}/2", f"lmdb://{place}/3"]
    with open_for_writing(urls[0], create=True) as opened:
        for batch in histories(data):
            opened.store.apply(batch)
    for old, new in pairwise(urls):
        with open_for_writing(new, create=True) as opened:
            import_lines(opened.store, lines(old))
    assert findings(urls[2]) == []
    assert lines(urls[0]) == lines(urls[1]) == lines(urls[2])


def histories(data: st.DataObject) -> list[WriteBatch]:
    """Some batches that append, remove and deliver in two lanes of one queue."""
    batches = []
    used = {1: 0, 2: 0}
    for _ in range(data.draw(st.integers(1, 5), "batches")):
        batch = WriteBatch()
        batch.destinations[1] = StoredDestination(1, "queue", "q", {}, (1, 2))
        for lane in used:
            part = batch.lane(lane)
            for size in data.draw(st.lists(st.integers(0, 3000), max_size=8), "appends"):
                used[lane] += data.draw(st.integers(1, 3), "gap")
                content = b"message-id:%d-%d\n\n" % (lane, used[lane])
                part.appends.append(Message(used[lane], content + b"x" * size, expiration=size % 3))
            sequences = st.integers(1, used[lane] + 1)
            part.deliveries.update({at: Delivery(at, cause="x") for at in data.draw(st.lists(sequences, max_size=3))})
            part.removals += data.draw(st.lists(sequences, max_size=10), "removals")
        batches.append(batch)
    return batches


def test_long_producer_ids_are_walked_to_the_end(tmp_path: Path) -> None:
    ids = {f"{'p' * 600}{number}": number for number in range(9)}
    with open_for_writing(f"lmdb://{tmp_path}/store", create=True) as opened:
        opened.store.apply(WriteBatch(producers={**ids, "short": 9}))
        assert sorted(number for _, number in walk_producers(opened.store, 2)) == list(range(10))
