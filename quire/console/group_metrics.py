"""The metrics of consumer groups. None has a member as a label: there may be any number of those.

There may be any number of groups too: each member of a broadcast is one. So the first groups, by stream and name, have
metrics of their own, ``GROUPS_SHOWN`` of them; of all groups together the lag is told by stream.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from quire.broker.management.consumer_group_info import ConsumerGroupStatus, GroupCounters

GROUPS_SHOWN = 1000
"""How many groups have metrics of their own."""

_LABELS = ["stream", "group"]


class _Gauge(NamedTuple):
    """A metric of a group; None if it is not known, or there is nothing to tell."""

    name: str
    text: str
    value: Callable[[ConsumerGroupStatus], float | None]


class _Counter(NamedTuple):
    """A metric of what has happened in a group."""

    name: str
    text: str
    value: Callable[[GroupCounters], float]


_GAUGES = [
    _Gauge("quire_group_lag_messages", "Messages that are not finished, without retries.", lambda g: g.lag),
    _Gauge("quire_group_in_flight_messages", "Messages that members have, retries too.", lambda g: g.in_flight),
    _Gauge("quire_group_retry_messages", "Messages in the retry lane; absent if there is none.", lambda g: g.retries),
    _Gauge("quire_group_members", "Members, those that are awaited included.", lambda g: g.members),
    _Gauge("quire_group_connected_members", "Members that have a connection.", lambda g: g.connected),
    _Gauge("quire_group_epoch", "Number of the newest assignment: rebalances and resets.", lambda g: g.epoch),
    _Gauge(
        "quire_group_oldest_message_age_seconds", "Age of the oldest message that is not finished; absent if unknown.",
        lambda g: g.oldest_message_age_seconds,
    ),
]  # fmt: skip
_COUNTERS = [
    _Counter("quire_group_delivered_messages", "Deliveries to members.", lambda c: c.delivered),
    _Counter("quire_group_acknowledged_messages", "Messages that were acknowledged in time.", lambda c: c.acknowledged),
    _Counter("quire_group_redelivered_messages", "Deliveries that came back.", lambda c: c.redelivered),
    _Counter("quire_group_timed_out_messages", "Those of them whose time was up.", lambda c: c.timed_out),
    _Counter("quire_group_late_acknowledgements", "Acknowledgements after that, that counted.", lambda c: c.late),
    _Counter("quire_group_stale_acknowledgements", "Those of messages that were done or taken.", lambda c: c.stale),
    _Counter("quire_group_fenced_acknowledgements", "Those of assignments that had ended.", lambda c: c.fenced),
    _Counter("quire_group_dead_lettered_messages", "Messages that became dead letters.", lambda c: c.dead_lettered),
    _Counter("quire_group_lost_messages", "Messages that retention removed unfinished.", lambda c: c.lost),
]


def group_metrics(groups: Sequence[ConsumerGroupStatus]) -> Iterator[Metric]:
    """All metrics of consumer groups.

    Args:
        groups: all groups, by stream and name.
    """
    shown = groups[:GROUPS_SHOWN]
    for row in _GAUGES:
        gauge = GaugeMetricFamily(row.name, row.text, labels=_LABELS)
        for group in shown:
            if (value := row.value(group)) is not None:
                gauge.add_metric([group.stream, group.name], value)
        yield gauge
    for number in _COUNTERS:
        counter = CounterMetricFamily(number.name, number.text, labels=_LABELS)
        for group in shown:
            counter.add_metric([group.stream, group.name], number.value(group.counters))
        yield counter
    blocked = GaugeMetricFamily(
        "quire_group_blocked_seconds", "For how long messages cannot be given out, while that is so.",
        labels=[*_LABELS, "cause"],
    )  # fmt: skip
    for group in shown:
        if group.blocked:
            blocked.add_metric([group.stream, group.name, group.blocked.cause], group.blocked.age_seconds)
    yield blocked
    yield from _together(groups)


def _together(groups: Sequence[ConsumerGroupStatus]) -> Iterator[Metric]:
    lags: Counter[str] = Counter()
    for group in groups:
        lags[group.stream] += group.lag
    lag = GaugeMetricFamily("quire_groups_lag_messages", "The lag of all groups of a stream.", labels=["stream"])
    for stream, total in lags.items():
        lag.add_metric([stream], total)
    yield lag
    left_out = max(len(groups) - GROUPS_SHOWN, 0)
    yield GaugeMetricFamily("quire_groups_left_out", "Groups that have no metrics of their own.", left_out)
