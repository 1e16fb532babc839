"""All tests of OpenWire clients once more: this time from a process that has none of the destinations.

What a client sees must be the same. The tests that are left out see more than a client does, or differ for a reason.
"""

from types import ModuleType

import pytest

import tests.unit.server.openwire.rig as rig
from tests.unit.server.cluster.relayed_rig import RelayedRig
from tests.unit.server.openwire import (
    test_acknowledgements,
    test_advisories,
    test_connections,
    test_consumers,
    test_consumers_of_several,
    test_consumers_pulling,
    test_durable_subscriptions,
    test_exchange_with_stomp,
    test_held_producers,
    test_negotiation,
    test_recorded_clients,
    test_rights,
    test_sending,
    test_streams,
    test_temporary_destinations,
    test_transactions,
    test_xa,
)

MODULES: list[ModuleType] = [
    test_acknowledgements, test_advisories, test_connections, test_consumers, test_consumers_of_several,
    test_consumers_pulling, test_durable_subscriptions, test_exchange_with_stomp, test_held_producers,
    test_negotiation, test_recorded_clients, test_rights, test_sending, test_streams, test_temporary_destinations,
    test_transactions, test_xa,
]  # fmt: skip

LOOKS_INSIDE = {
    "test_a_client_waits_for_its_client_id_while_its_lost_connection_is_read_to_its_end",
    "test_a_refused_client_may_come_again_under_the_same_connection_id",
    "test_the_same_connection_on_a_new_socket_takes_the_place_of_the_old_one",
    "test_the_end_of_the_old_socket_leaves_the_new_one_alone",
    "test_a_broker_that_stops_tells_its_clients_and_closes",
    "test_a_consumer_that_is_too_slow_is_ended_alone",
    "test_a_producer_is_held_while_the_store_is_full_and_goes_on_when_there_is_room",
    "test_a_held_producer_that_sends_on_is_read_no_more",
    "test_input_beyond_the_time_of_a_turn_waits_for_the_next_one",
    "test_a_consumer_that_does_not_read_is_given_no_more",
    "test_sends_in_branches_that_do_not_exist_are_refused_and_leave_nothing_behind",
    "test_a_browser_is_shown_nothing_that_was_sent_after_it",
}
"""They look into the session of the client, which has nothing at the entry, or at a moment inside a turn."""

DIFFER = {
    "test_a_connection_comes_and_goes",  # a process without a shard tells of no connections
    "test_a_connection_that_is_taken_back_has_gone_once",  # for the same reason
    "test_a_new_listener_is_told_of_the_connections_there_are",  # for the same reason
    "test_a_producer_that_is_held_too_long_is_told_and_closed",  # the entry reads on: it asks for signs of life
    "test_a_held_producer_is_not_taken_for_dead",  # so it does here
    "test_each_user_may_do_what_the_table_says",  # see below
}
"""They differ in a cluster."""


@pytest.fixture(autouse=True)
def _all_clients_are_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rig, *MODULES):
        monkeypatch.setattr(module, "Rig", RelayedRig)


globals().update({
    f"{name}__{module.__name__.rpartition('.')[2]}": test
    for module in MODULES
    for name, test in vars(module).items()
    if name.startswith("test_") and callable(test) and name not in LOOKS_INSIDE | DIFFER
})  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "row",
    # The entry knows no branch of others: it is the shard that refuses, with the first message or acknowledgement.
    [row for row in test_rights.ROWS if row.what != "works in another's branch"],
    ids=lambda row: f"{row.command.__name__} {row.what}",
)
def test_each_user_may_do_what_the_table_says(row: test_rights.Row) -> None:
    test_rights.test_each_user_may_do_what_the_table_says(row)
