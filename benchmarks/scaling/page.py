"""The tables of ``docs/scaling.md``, and what ``plan`` prints."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from benchmarks.compare import replace_table
from benchmarks.scaling.capacity import (
    ASSUMPTIONS,
    HIGHEST,
    Cluster,
    Demand,
    Limit,
    Machines,
    TooMuch,
    highest_rate,
    limits,
    plan,
)
from benchmarks.scaling.costs import Costs, Work

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"

NOT_MEASURED = "Not measured yet: `python -m benchmarks.scaling measure --write` puts this here."

TOGETHER = 100
"""How many messages share a commit and a trip in the table of costs, if they do not come alone."""

RATES = (1_000, 10_000, 50_000, 200_000, 1_000_000)
QUEUES = 1_000


def demand_of(rate: float, size: float = 1024, queues: int = QUEUES, fanout: int = 1) -> Demand:
    return Demand(rate, size, queues, fanout, queues, queues * fanout, queues * (1 + fanout))


def write_page(costs: Costs) -> None:
    PAGE.write_text(filled(PAGE.read_text("utf-8"), tables(costs)), "utf-8")


def filled(page: str, found: Mapping[str, str]) -> str:
    for name, table in found.items():
        page = replace_table(page, name, table)
    return page


def tables(costs: Costs) -> dict[str, str]:
    conditions = f"Measured {costs.measured} on {costs.machine}; {costs.versions}; PostgreSQL on the same machine."
    return {
        "conditions": conditions,
        "costs": "\n".join(_costs(costs)),
        "idle": "\n".join(_idle(costs)),
        "checks": "\n".join(_checks(costs)),
        "limits": "\n".join(_limits(costs)),
        "plans": "\n".join(_plans(costs)),
        "assumptions": "\n".join([f"- {text}" for text in ASSUMPTIONS]),
    }


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    heads = list(heads)
    yield _row(*heads)
    yield _row(*["---"] * len(heads))
    for row in rows:
        yield _row(*row)


def _costs(costs: Costs) -> Iterator[str]:
    """What a message costs that comes alone, and one of many."""
    columns = [(1024, 1.0), (1024, 1 / TOGETHER), (8192, 1 / TOGETHER)]
    sent = [Work(sent=1, sent_bytes=size, commits=part, trips=part) for size, part in columns]
    taken = [Work(taken=1, taken_bytes=size, commits=part, trips=part) for size, part in columns]
    rows = [
        ("broker, µs", "send: receive, store, receipt", costs.broker, sent),
        ("", "take: deliver, acknowledge, remove", costs.broker, taken),
        ("entry and owner, more µs", "send, relayed", costs.relay, sent),
        ("", "take, relayed", costs.relay, taken),
        ("database, µs", "send", costs.database, sent),
        ("", "take", costs.database, taken),
        ("log, bytes", "send", costs.log, sent),
        ("", "take", costs.log, taken),
        ("network of clients, bytes", "send", costs.wire, sent),
        ("", "take", costs.wire, taken),
        ("link, more bytes", "send, relayed", costs.link, sent),
        ("", "take, relayed", costs.link, taken),
    ]
    cells, factor = [], 1.0
    for what, name, unit, amounts in rows:
        factor = (1e6 if "µs" in what else 1.0) if what else factor
        cells.append([what, name, *[f"{unit.cost(amount) * factor:,.0f}" for amount in amounts]])
    many = f"one of {TOGETHER}"
    yield from _table(["cost for", "of a message", "1 KiB, alone", f"1 KiB, {many}", f"8 KiB, {many}"], cells)
    yield ""
    yield f"Of a take, {costs.acknowledge * 1e6:.1f} µs are for an ACK of its own, which a cumulative one saves."
    errors = ", ".join([f"{name} {error:.0%}" for name, error in costs.fit.items()])
    yield f"The measurements differ from these costs by at most: {errors}."


def _idle(costs: Costs) -> Iterator[str]:
    idle, disk = costs.idle, costs.disk
    shard = f"{idle.shard_seconds:.1%} of a core, {idle.shard_memory / 1e6:.0f} MB"
    at_database = f"{idle.database_seconds:.1%} of a core, {idle.database_connections:.1f} connections"
    connection = f"{idle.connection_memory / 1e3:.1f} kB, {idle.heart_beat_seconds * 1e6:.0f} µs for a heart-beat"
    written = f"{disk.syncs_per_s:,.0f}/s of 8 KiB each, or {disk.bytes_per_s / 1e6:,.0f} MB/s of 1 MiB each"
    yield from _table(
        ["what is there", "takes"],
        [
            ["a shard without messages", shard],
            ["the same, at the database", at_database],
            ["a connection", connection],
            ["a queue with a message", f"{idle.destination_memory / 1e3:.1f} kB"],
            ["a subscription", f"{idle.subscription_memory / 1e3:.1f} kB"],
            ["synced writes of this machine's disk", written],
        ],
    )


def _checks(costs: Costs) -> Iterator[str]:
    """The forecast and the measurement of each check, and how far they are apart."""

    def pair(said: float, was: float, factor: float = 1.0, digits: int = 0) -> str:
        return f"{said * factor:,.{digits}f} / {was * factor:,.{digits}f} ({said / was - 1:+.0%})"

    yield from _table(
        ["load", "cores", "messages/s", "brokers, µs", "database, µs", "log, bytes"],
        [
            [
                check.load, str(check.cores), f"{check.wanted:,.0f} given" if check.wanted else pair(*check.rate),
                pair(*check.broker, 1e6), pair(*check.database, 1e6), pair(*check.log),
            ]
            for check in costs.checks
        ],
    )  # fmt: skip


def _limits(costs: Costs) -> Iterator[str]:
    machines, cluster, demand = Machines(), Cluster(8, 2, 1), demand_of(1)
    names = [limit.name for limit in limits(costs, demand, machines, cluster)]
    rates = sorted([(highest_rate(costs, demand, machines, cluster, name), name) for name in names])
    one = highest_rate(costs, demand_of(1, queues=1), Machines(log=1e12, network=1e12), Cluster(1, 1, 1))
    yield from _table(
        ["limit", "is met at"],
        [
            ["one destination, its clients connected to its shard", f"{one:,.0f}/s"],
            *[[name, f"{rate:,.0f}/s"] for rate, name in rates if rate < HIGHEST - 1],
        ],
    )


def _plans(costs: Costs) -> Iterator[str]:
    machines, rows = Machines(), []
    for rate in RATES:
        demand = demand_of(rate)
        try:
            cluster = plan(costs, demand, machines)
        except TooMuch as error:
            rows.append([f"{rate:,}/s", "-", "-", "-", error.limit.name, "-"])
            continue
        most = highest_rate(costs, demand, machines, cluster)
        first = limits(costs, demand._replace(rate=most), machines, cluster)[0]
        rows.append([f"{rate:,}/s", *[f"{number:,}" for number in cluster], first.name, f"{most:,.0f}/s"])
    yield from _table(["messages", "shards", "brokers", "databases", "the next limit", "is met at"], rows)


def plan_lines(costs: Costs, demand: Demand, machines: Machines) -> Iterator[str]:
    cluster = plan(costs, demand, machines)
    found = limits(costs, demand, machines, cluster)
    yield (
        f"{demand.rate:,.0f} messages/s of {demand.size:,.0f} bytes over {demand.destinations:,} destinations, each to "
        f"{demand.fanout}; {demand.producers:,} producers, {demand.consumers:,} consumers, "
        f"{demand.connections:,} connections"
    )
    yield ""
    yield f"shards     {cluster.shards:>6,}"
    yield f"brokers    {cluster.brokers:>6,}  of {machines.cores} cores; with one more, one may be lost"
    yield f"databases  {cluster.databases:>6,}  of {machines.database_cores} cores"
    yield ""
    for limit in found:
        yield f"{limit.share:>6.1%}  {limit.name:32}  {_amount(limit.used, limit.unit)} of {_told(limit)}"
    yield ""
    most = highest_rate(costs, demand, machines, cluster)
    first = limits(costs, demand._replace(rate=most), machines, cluster)[0]
    yield f"The first limit is {first.name}, at {most:,.0f} messages/s. Beyond it needs more {first.needs}."
    yield ""
    yield f"Assumed, with costs measured {costs.measured} on {costs.machine}:"
    yield from [f"- {text}" for text in ASSUMPTIONS]


def _told(limit: Limit) -> str:
    return f"{_amount(limit.there, limit.unit)} {limit.unit.replace('bytes', 'MB')}"


def _amount(value: float, unit: str) -> str:
    if unit.startswith("bytes"):
        return f"{value / 1e6:,.1f}"
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
