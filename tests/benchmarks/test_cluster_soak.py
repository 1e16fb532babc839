"""What judges a soak of a cluster: logs of groups and streams, and what broken promises are counted as."""

from benchmarks.cluster.load import GroupLog, StreamLog
from benchmarks.cluster.report import kind_of, rows
from benchmarks.cluster.soak import Outage
from tests.acceptance.crash.load import Key, Ledger, Order

ONE, OTHER = "one", "other"


def test_a_group_stays_with_its_consumer_and_comes_again_flagged_to_another() -> None:
    log = GroupLog()
    for number in (1, 2, 3):
        log.deliver("g", number, ONE, False)
    log.acknowledge("g", 1)
    log.deliver("h", 7, OTHER, False)
    log.deliver("g", 2, OTHER, True)
    log.deliver("g", 3, OTHER, True)
    log.deliver("g", 4, OTHER, False)
    assert log.violations == []


def test_a_lost_consumer_has_nothing() -> None:
    log = GroupLog()
    log.deliver("g", 1, ONE, False)
    log.lost(ONE)
    log.deliver("g", 2, OTHER, False)
    assert log.violations == []


def test_a_group_at_two_consumers_is_found() -> None:
    log = GroupLog()
    log.deliver("g", 1, ONE, False)
    log.deliver("g", 2, OTHER, False)
    assert [kind_of(violation) for violation in log.violations] == ["groups_at_two_consumers"]


def test_a_group_out_of_order_is_found() -> None:
    log = GroupLog()
    log.deliver("g", 2, ONE, False)
    log.deliver("g", 1, ONE, False)
    assert [kind_of(violation) for violation in log.violations] == ["out_of_order"]


def key(number: int, attempt: int = 1) -> Key:
    return Key("p", attempt, number, number)


def test_a_group_of_a_stream_that_gets_all_in_order_is_right() -> None:
    log = StreamLog("s g")
    for offset in (1, 2, 4):  # the commit of offset 3 failed
        log.deliver(0, offset, key(offset), False)
    log.deliver(0, 2, key(2), True)
    log.progress(0, 1)
    log.progress(0, 4)
    log.compare({(0, offset): key(offset) for offset in (1, 2, 4)})
    assert log.violations == []


def test_what_may_not_be_with_a_stream_is_found() -> None:
    log = StreamLog("s g")
    log.deliver(0, 2, key(2), False)
    log.deliver(0, 1, key(1), False)
    log.progress(0, 2)
    log.progress(0, 1)
    log.compare({(0, 2): key(2), (0, 3): key(3)})
    assert [kind_of(violation) for violation in log.violations] == [
        "out_of_order", "progress_back", "stream_gaps", "other",
    ]  # fmt: skip


def test_messages_that_are_stored_out_of_order_are_found() -> None:
    log, stored = StreamLog("s g"), {(0, 1): key(2), (0, 2): key(1)}
    for (partition, offset), each in stored.items():
        log.deliver(partition, offset, each, False)
    log.compare(stored)
    assert [kind_of(violation) for violation in log.violations] == ["out_of_order"]


def test_what_ledgers_find_is_counted_as_what_it_is() -> None:
    ledger = Ledger()
    ledger.deliver("id-1", key(1), False)
    ledger.deliver("id-1", key(1), False)
    ledger.settled.add("id-1")
    ledger.deliver("id-1", key(1), True)
    ledger.deliver("id-2", key(1), False)
    ledger.check_once("p")
    ledger.check_whole("p", 2)
    order = Order(ledger)
    order.follow(key(2))
    order.follow(key(1))
    assert [kind_of(violation) for violation in ledger.violations] == [
        "unflagged_duplicates", "acknowledged_and_back", "stored_twice", "transactions_in_part", "out_of_order",
    ]  # fmt: skip


def test_the_table_has_each_event_with_its_times() -> None:
    outages = [Outage("broker killed", shard, seconds) for shard, seconds in enumerate((3.0, 1.0, 2.0))]
    (row,) = rows(outages)
    assert row == {"event": "broker killed", "shards": 3, "least": 1.0, "median": 2.0, "most_of_10": 3.0, "most": 3.0}


def test_a_violation_of_another_kind_is_counted_too() -> None:
    assert kind_of("berlin stopped with 1") == "other"
