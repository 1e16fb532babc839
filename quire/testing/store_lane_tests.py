"""The part of the conformance suite that is about one lane: links, paging, delivery states."""

import pytest

from quire.message import Message
from quire.store.base import Delivery, LaneState, Page, Store, WriteBatch, walk
from quire.testing.store_case import PLENTY, StoreCase, append, charge, fill, remove, sequences, set_states
from quire.testing.store_model import ModelLane, make_message

MIB = 1 << 20


class LaneTests(StoreCase):
    """Order, links in both directions, exact counts, paging within a budget, delivery states."""

    # Appending and the links

    def test_unknown_lane_is_empty_and_new(self, store: Store) -> None:
        """Reading what is not there is no error."""
        assert store.lane_state(9) == LaneState()
        assert store.page(9, 1, PLENTY, 10) == Page([], end=True)
        assert store.load(9, [1]) == []
        assert store.links(9, 0, 10) == []
        assert store.deliveries(9, 0, 10) == []

    def test_appends_are_linked_in_order(self, store: Store) -> None:
        """A run is joined to the tail, and sequences may leave gaps."""
        fill(store, 1, 2)
        append(store, 1, make_message(5), make_message(9))
        assert [link[:3] for link in store.links(1, 0, 10)] == [(1, 0, 2), (2, 1, 5), (5, 2, 9), (9, 5, 0)]
        assert store.lane_state(1) == LaneState(head=1, tail=9, count=4, bytes=160, next_sequence=10)

    def test_record_comes_back_as_it_was(self, store: Store) -> None:
        """Content, expiration and priority are kept to the byte."""
        content = b"message-id:x\ntimestamp:0\n\n" + bytes(range(256))
        append(store, 1, Message(3, content, expiration=1_700_000_000_123, priority=9))
        for message in (store.page(1, 1, PLENTY, 1).messages[0], store.load(1, [3])[0]):
            assert (message.sequence, message.content, message.size) == (3, content, len(content))
            assert (message.expiration, message.priority) == (1_700_000_000_123, 9)
            assert (message.deliveries, message.failures, message.redelivered) == (0, 0, False)
            assert message.not_before == 0

    @pytest.mark.parametrize(
        "removed",
        [
            [1], [10], [5], [1, 2, 3], [8, 9, 10], [4, 5, 6], [2, 4, 6, 8], [1, 3, 5, 7, 9], [1, 10], [6, 5, 2, 3, 9],
            [5, 5, 77], [77], list(range(2, 10)), list(range(1, 11)), [10, 9, 1, 2, 5],
        ],
        ids=str,
    )  # fmt: skip
    def test_removal_relinks(self, store: Store, removed: list[int]) -> None:
        """After any removal the links agree in both directions, and head, tail, count and bytes are exact."""
        lane = ModelLane()
        batch = WriteBatch()
        batch.lane(1).appends = [make_message(sequence, 40 + sequence) for sequence in range(1, 11)]
        store.apply(batch)
        lane.apply(batch.lane(1))
        for part in (removed, removed, [7], [11, 12]):
            batch = WriteBatch()
            batch.lane(1).removals = part
            store.apply(batch)
            lane.apply(batch.lane(1))
            lane.check(store, 1)
        append(store, 1, make_message(11))
        assert store.lane_state(1).tail == 11

    def test_appends_come_before_removals(self, store: Store) -> None:
        """A batch may remove what it appends."""
        fill(store, 1, 3)
        batch = WriteBatch()
        batch.lane(1).appends = [make_message(4), make_message(5), make_message(6)]
        batch.lane(1).removals = [3, 4, 6]
        store.apply(batch)
        assert [link[:3] for link in walk(store, 1)] == [
            (1, 0, 2),
            (2, 1, 5),
            (5, 2, 0),
        ]
        assert store.lane_state(1) == LaneState(head=1, tail=5, count=3, bytes=120, next_sequence=7)

    def test_sequences_are_never_used_again(self, store: Store) -> None:
        """An emptied lane remembers its next sequence, also over a restart."""
        fill(store, 1, 3)
        remove(store, 1, 1, 2, 3)
        store = self.again(store)
        assert store.lane_state(1) == LaneState(next_sequence=4)
        append(store, 1, make_message(4))
        assert store.links(1, 0, 9)[0][:3] == (4, 0, 0)

    def test_dispatch_mark(self, store: Store) -> None:
        """The mark is set by itself or with records, and stays until it is set again."""
        batch = WriteBatch()
        batch.lane(1).dispatch_mark = 500
        store.apply(batch)
        fill(store, 1, 1)
        assert store.lane_state(1) == LaneState(1, 1, 1, 40, 2, 500)

    def test_batch_says_what_its_lanes_are_after_it(self, store: Store) -> None:
        """No read is needed for it, whatever was there before and whatever was removed."""
        fill(store, 1, 5)
        batch = WriteBatch()
        batch.lane(1).appends = [make_message(8, 70)]
        batch.lane(1).removals = [1, 3, 3, 77]
        batch.lane(2).appends = [make_message(1, 50)]
        batch.lane(2).removals = [1]
        batch.lane(3).dispatch_mark = 9
        store.apply(batch)
        assert batch.lane(1).state == LaneState(head=2, tail=8, count=4, bytes=190, next_sequence=9)
        assert batch.lane(2).state == LaneState(next_sequence=2)
        assert batch.lane(3).state == LaneState(dispatch_mark=9)
        assert [batch.lane(lane).state for lane in (1, 2, 3)] == [store.lane_state(lane) for lane in (1, 2, 3)]

    def test_empty_batch_changes_nothing(self, store: Store) -> None:
        """Neither does a batch with an empty part."""
        batch = WriteBatch()
        batch.lane(1)
        store.apply(WriteBatch())
        store.apply(batch)
        assert store.lane_state(1) == LaneState()

    @pytest.mark.slow
    def test_big_content(self, store: Store) -> None:
        """Five mebibytes are a record like any other."""
        append(store, 1, make_message(1), make_message(2, 5 * MIB), make_message(3))
        assert store.load(1, [2])[0].content == make_message(2, 5 * MIB).content
        assert store.lane_state(1).bytes == 5 * MIB + 80
        remove(store, 1, 2)
        assert store.lane_state(1) == LaneState(head=1, tail=3, count=2, bytes=80, next_sequence=4)

    @pytest.mark.slow
    def test_thousand_lanes(self, store: Store) -> None:
        """A batch may concern any number of lanes; they do not touch each other."""
        batch, removal = WriteBatch(), WriteBatch()
        for lane in range(1, 1001):
            batch.lane(lane).appends = [make_message(lane), make_message(lane + 1), make_message(lane + 2)]
            removal.lane(lane).removals = [lane + lane % 3]
        store.apply(batch)
        store.apply(removal)
        for lane in range(1, 1001):
            left = [sequence for sequence in (lane, lane + 1, lane + 2) if sequence != lane + lane % 3]
            assert store.lane_state(lane) == LaneState(left[0], left[1], 2, 80, lane + 3)
            assert [link.sequence for link in store.links(lane, 0, 9)] == left

    @pytest.mark.slow
    def test_many_scattered_removals(self, store: Store) -> None:
        """Removing every other of 25,000 records in one batch is exact."""
        fill(store, 1, 25_000)
        remove(store, 1, *range(1, 25_001, 2))
        assert store.lane_state(1) == LaneState(2, 25_000, 12_500, 500_000, 25_001)
        links = list(walk(store, 1))
        assert [link.sequence for link in links] == list(range(2, 25_001, 2))
        assert [link.previous for link in links] == [0, *range(2, 25_000, 2)]
        assert len(store.load(1, list(range(1, 25_001)))) == 12_500

    # Paging

    def test_pages_follow_one_another(self, store: Store) -> None:
        """Reading on from the last record's sequence brings every record once, in order."""
        fill(store, 1, 10)
        remove(store, 1, 3, 4, 8)
        found: list[int] = []
        while not (page := store.page(1, found[-1] + 1 if found else 0, charge(40, 40), 10)).end:
            found += sequences(page)
        assert found + sequences(page) == [1, 2, 5, 6, 7, 9, 10]

    @pytest.mark.parametrize("budget", [0, 1, charge(1000), charge(1000, 40) - 1])
    def test_first_record_whatever_its_size(self, store: Store, budget: int) -> None:
        """A lone giant still flows, and takes nothing with it that does not fit."""
        append(store, 1, make_message(1, 1000), make_message(2), make_message(3))
        page = store.page(1, 1, budget, 10)
        assert (sequences(page), page.end) == ([1], False)

    def test_first_refusal_ends_the_read(self, store: Store) -> None:
        """A smaller record behind a refused one is not let in."""
        append(store, 1, make_message(1), make_message(2, 1000), make_message(3))
        page = store.page(1, 1, charge(40, 40), 10)
        assert (sequences(page), page.end) == ([1], False)

    def test_budget_is_exact(self, store: Store) -> None:
        """What fills the budget to the byte fits; a record is charged its size and the overhead."""
        append(store, 1, make_message(1, 50), make_message(2, 60), make_message(3, 70))
        assert sequences(store.page(1, 1, charge(50, 60, 70), 10)) == [1, 2, 3]
        assert sequences(store.page(1, 1, charge(50, 60, 70) - 1, 10)) == [1, 2]

    def test_limit(self, store: Store) -> None:
        """No more records than asked for; the end is told when nothing is left."""
        fill(store, 1, 5)
        assert (sequences(store.page(1, 1, PLENTY, 2)), store.page(1, 1, PLENTY, 2).end) == ([1, 2], False)
        assert (sequences(store.page(1, 4, PLENTY, 2)), store.page(1, 4, PLENTY, 2).end) == ([4, 5], True)
        assert store.page(1, 1, PLENTY, 5).end

    def test_page_starts_in_a_gap(self, store: Store) -> None:
        """The start need not be there, nor anything after it."""
        fill(store, 1, 9)
        remove(store, 1, 1, 2, 5, 6)
        assert sequences(store.page(1, 1, PLENTY, 2)) == [3, 4]
        assert sequences(store.page(1, 5, PLENTY, 2)) == [7, 8]
        assert store.page(1, 10, PLENTY, 2) == Page([], end=True)

    @pytest.mark.parametrize(("start", "budget", "limit"), [(0, PLENTY, 100), (4, charge(40, 40), 100), (6, PLENTY, 3)])
    def test_contents_are_those_of_a_page(self, store: Store, start: int, budget: int, limit: int) -> None:
        """What is read in bulk is what is read otherwise, with the deliveries."""
        fill(store, 1, 6)
        append(store, 1, make_message(7, 60, priority=9, expiration=5000), make_message(8), make_message(9))
        remove(store, 1, 1, 5)
        set_states(store, 1, {3: Delivery(2), 7: Delivery(4, 1)})
        with store.snapshot() as reader:
            messages = reader.page(1, start, budget, limit).messages
            assert reader.contents(1, start, budget, limit) == [
                (one.sequence, one.content, one.expiration, one.priority, one.deliveries) for one in messages
            ]
            assert reader.contents(2, 0, PLENTY, 10) == []

    def test_load_in_the_order_asked_for(self, store: Store) -> None:
        """What is not there is left out."""
        fill(store, 1, 9)
        remove(store, 1, 4)
        assert [message.sequence for message in store.load(1, [8, 4, 2, 77, 9])] == [8, 2, 9]
        assert store.load(1, []) == []

    def test_links_from_a_sequence_on(self, store: Store) -> None:
        """Links are read without bodies, a step at a time."""
        fill(store, 1, 9)
        remove(store, 1, 4, 5)
        assert [link[:4] for link in store.links(1, 4, 2)] == [(6, 3, 7, 40), (7, 6, 8, 40)]
        assert [link.sequence for link in walk(store, 1, step=2)] == [1, 2, 3, 6, 7, 8, 9]

    # Delivery states

    def test_states_are_set_replaced_and_removed(self, store: Store) -> None:
        """They are listed in order and come with their messages."""
        fill(store, 1, 5)
        set_states(store, 1, {4: Delivery(1, 0, 5, "nack"), 2: Delivery(1)})
        set_states(store, 1, {2: Delivery(2, 1, 1_700_000_000_000, "unerwartet: ä"), 4: None})
        set_states(store, 1, {5: Delivery(7, 7)})
        expected = [(2, Delivery(2, 1, 1_700_000_000_000, "unerwartet: ä")), (5, Delivery(7, 7))]
        assert store.deliveries(1, 0, 10) == expected
        assert store.deliveries(1, 3, 10) == expected[1:]
        assert store.deliveries(1, 0, 1) == expected[:1]
        for message in (store.page(1, 2, PLENTY, 1).messages[0], store.load(1, [2])[0]):
            assert (message.deliveries, message.failures, message.redelivered) == (2, 1, True)
            assert message.not_before == 1_700_000_000_000
        assert (store.load(1, [4])[0].redelivered, store.load(1, [4])[0].not_before) == (False, 0)

    def test_delay_is_no_delivery(self, store: Store) -> None:
        """A record that only waits was not seen by any consumer."""
        fill(store, 1, 1)
        set_states(store, 1, {1: Delivery(0, 0, 1_700_000_000_000)})
        message = store.load(1, [1])[0]
        assert (message.redelivered, message.not_before) == (False, 1_700_000_000_000)

    def test_states_go_with_their_records(self, store: Store) -> None:
        """Also when set in the batch that removes them, or when the record went before."""
        fill(store, 1, 3)
        set_states(store, 1, {1: Delivery(1), 2: Delivery(2)})
        batch = WriteBatch()
        batch.lane(1).appends = [make_message(4)]
        batch.lane(1).removals = [1, 3]
        batch.lane(1).deliveries = {3: Delivery(3), 4: Delivery(4)}
        store.apply(batch)
        set_states(store, 1, {1: Delivery(5)})
        assert store.deliveries(1, 0, 10) == [(2, Delivery(2)), (4, Delivery(4))]
