"""Policies: which entries hold for a destination, and where each of its values comes from."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.destination import Destination, queue, topic
from quire.errors import InvalidSettings
from quire.settings import Policies, Policy
from quire.settings import policy as policy_module
from quire.settings.policy import read_policies


def policies(*entries: dict[str, Any], **base: Any) -> Policies:
    return Policies(Policy(**base), read_policies(list(entries), "file f"))


def prefetch(destination: Destination, *entries: tuple[str, int]) -> int:
    tables = [{"destination": text, "queue_prefetch": value} for text, value in entries]
    return policies(*tables).of(destination).queue_prefetch


def test_without_entries_every_destination_has_the_base() -> None:
    found = policies(queue_prefetch=5)
    assert found.of(queue("a")) is found.of(topic("b")) is found.base
    assert found.base == Policy(queue_prefetch=5)


def test_an_entry_changes_its_keys_for_what_it_matches() -> None:
    found = policies({"destination": "a.>", "queue_prefetch": 5, "redelivery_delay": "2s"}, memory_limit=7)
    assert found.of(queue("a.b")) == Policy(queue_prefetch=5, redelivery_delay=2.0, memory_limit=7)
    assert found.of(queue("b")) == Policy(memory_limit=7)


def test_entries_are_merged_key_by_key() -> None:
    found = policies(
        {"destination": "a.b.c", "queue_prefetch": 1},
        {"destination": "a.*.c", "queue_prefetch": 2, "memory_limit": 2},
        {"destination": "a.>", "queue_prefetch": 3, "memory_limit": 3, "maximum_redeliveries": 3},
        {"destination": ">", "queue_prefetch": 4, "memory_limit": 4, "maximum_redeliveries": 4, "recovery_count": 4},
    )
    expected = Policy(queue_prefetch=1, memory_limit=2, maximum_redeliveries=3, recovery_count=4)
    assert found.of(queue("a.b.c")) == expected


@given(st.permutations([("a.b", 1), ("a.*", 2), ("a.>", 3), ("*.b", 4), (">", 5)]))
def test_the_most_specific_entry_wins_wherever_it_stands(entries: list[tuple[str, int]]) -> None:
    names = ["a.b", "a.c", "a", "c.b", "d"]
    assert [prefetch(queue(name), *entries) for name in names] == [1, 2, 3, 4, 5]


def test_a_prefix_is_for_one_kind_and_more_specific_than_none() -> None:
    entries = [("queue://a.*", 1), ("a.*", 2), ("topic://a.*", 3)]
    assert [prefetch(made("a.b"), *entries) for made in (queue, topic)] == [1, 3]
    assert prefetch(topic("a.b"), ("queue://a.b", 1), ("a.*", 2)) == 2
    assert prefetch(queue("a.b"), ("queue://a.*", 1), ("a.b", 2)) == 2


def test_of_two_equal_patterns_the_later_one_wins() -> None:
    assert prefetch(queue("a"), ("a", 1), ("a", 2)) == 2
    assert prefetch(queue("a"), ("queue://a", 2), ("queue://a", 1)) == 1


def test_a_policy_is_made_once_and_the_memory_of_them_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_module, "CACHED", 2)
    found = policies({"destination": "a.>", "queue_prefetch": 5})
    first = found.of(queue("a.1"))
    assert found.of(queue("a.1")) is first
    for number in range(5):
        found.of(queue(f"a.{number}"))
        assert len(found._cache) <= 2
    assert found.of(queue("a.1")) == first


def test_explain_says_where_each_value_comes_from() -> None:
    found = Policies(
        Policy(memory_limit=7, topic_prefetch=8),
        read_policies(
            [{"destination": "a.>", "queue_prefetch": 1}, {"destination": "a", "queue_prefetch": 2}], "file f"
        ),
        {"memory_limit": "environment QUIRE_POLICY__MEMORY_LIMIT", "topic_prefetch": "file f"},
    )
    settings = found.explain(queue("a"))
    origins = {setting.key: (setting.value, setting.origin) for setting in settings}
    assert origins["policy.queue_prefetch"] == (2, "policy a (file f, entry 2)")
    assert origins["policy.memory_limit"] == (7, "environment QUIRE_POLICY__MEMORY_LIMIT")
    assert origins["policy.topic_prefetch"] == (8, "file f")
    assert origins["policy.recovery_count"] == (100, "default")
    policy = found.of(queue("a"))
    assert {setting.key: setting.value for setting in settings} == {
        f"policy.{name}": getattr(policy, name) for name in Policy.__dataclass_fields__
    }


@pytest.mark.parametrize(
    ("entry", "key", "text"),
    [
        ({"queue_prefetch": 1}, "policies.destination", "needs destination ="),
        ({"destination": 5}, "policies.destination", "needs destination ="),
        ({"destination": "a.>.b"}, "policies.destination", "is not a pattern"),
        ({"destination": "streams://a"}, "policies.destination", "write queue://NAME, topic://NAME or stream://NAME"),
        ({"destination": "a", "queue_prefech": 1}, "queue_prefech", "did you mean queue_prefetch?"),
        ({"destination": "a", "address": 1}, "address", "is not a setting"),
        ({"destination": "a", "queue_prefetch": 0}, "queue_prefetch", "at least 1"),
    ],
)
def test_a_wrong_entry_is_an_error_that_names_it_and_its_key(entry: dict[str, Any], key: str, text: str) -> None:
    with pytest.raises(InvalidSettings, match="file f, entry 2") as caught:
        read_policies([{"destination": "fine"}, entry], "file f")
    assert caught.value.data["key"] == key
    assert text in str(caught.value)


@pytest.mark.parametrize("tables", [{"destination": "a"}, "a", ["a"]])
def test_what_is_no_array_of_tables_is_an_error(tables: object) -> None:
    with pytest.raises(InvalidSettings, match=r"begin each entry with \[\[policies\]\]"):
        read_policies(tables, "file f")


CONTRADICTIONS: dict[str, dict[str, Any]] = {
    "message_eviction_strategy": {"message_eviction_strategy": "unique-property"},
    "blocking_redelivery": {"blocking_redelivery": True, "redelivery_at": "tail"},
    "use_exponential_back_off": {"use_exponential_back_off": True, "back_off_multiplier": 1.0},
    "maximum_redelivery_delay": {"use_exponential_back_off": True, "maximum_redelivery_delay": 0.5},
    "queue_prefix": {"dead_letter_strategy": "individual", "queue_prefix": ""},
    "topic_prefix": {
        "dead_letter_strategy": "individual", "topic_prefix": "", "use_queue_for_topic_messages": False,
    },
    "slow_consumer_strategy": {"slow_consumer_strategy": "abort", "max_slow_duration": -1.0},
    "zero_expiration_override": {"zero_expiration_override": 2.0, "ttl_ceiling": 1.0},
}  # fmt: skip


@pytest.mark.parametrize("key", CONTRADICTIONS)
def test_what_makes_no_sense_together_is_an_error_in_the_base(key: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        policies(**CONTRADICTIONS[key])
    assert caught.value.data["key"] == f"policy.{key}"
    assert str(caught.value).startswith(f"{key} = ")


@pytest.mark.parametrize("key", CONTRADICTIONS)
@pytest.mark.parametrize("destination", ["a.*.c", "topic://a.>", "queue://a"])
def test_what_makes_no_sense_together_is_an_error_where_an_entry_holds(key: str, destination: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        policies({"destination": "b"}, {"destination": destination, **CONTRADICTIONS[key]})
    assert caught.value.data["key"] == f"policy.{key}"
    assert caught.value.data["origin"] in (f"policy {destination} (file f, entry 2)", "default")


@pytest.mark.parametrize(
    "sensible",
    [
        {"message_eviction_strategy": "unique-property", "eviction_property": "symbol"},
        {"use_exponential_back_off": True, "maximum_redelivery_delay": 0.5, "redelivery_delay": 0.1},
        {"maximum_redelivery_delay": 0.5},
        {"queue_prefix": "", "topic_prefix": ""},
        {"dead_letter_strategy": "individual", "queue_prefix": "", "queue_suffix": ".DLQ"},
        {"dead_letter_strategy": "individual", "topic_prefix": ""},
        {"slow_consumer_strategy": "abort", "max_slow_duration": -1.0, "max_slow_count": 3},
        {"zero_expiration_override": 2.0},
    ],
)
def test_what_makes_sense_together_is_accepted(sensible: dict[str, Any]) -> None:
    assert policies({"destination": "a.>", **sensible}).of(queue("a.b")) == Policy(**sensible)


def test_entries_may_complete_each_other() -> None:
    found = policies(
        {"destination": ">", "eviction_property": "symbol"},
        {"destination": "prices.*", "message_eviction_strategy": "unique-property"},
    )
    assert found.of(topic("prices.eu")).eviction_property == "symbol"
