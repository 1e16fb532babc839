"""One run: servers, brokers, clients, rounds, what has to be true at the end, and how long takeovers took."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from benchmarks.takeover.database import Database
from benchmarks.takeover.load import TakeoverLoad
from benchmarks.takeover.pair import SCHEMA, Loss, Network, Pair
from benchmarks.takeover.rounds import Commits, Outage, Rounds
from quire.store.maintenance.open_store import open_for_reading
from tests.acceptance.crash.broker_process import quire

_ALL = 1 << 40
_DEAD = "ActiveMQ.DLQ"


@dataclass(frozen=True)
class Plan:
    """What to do."""

    rounds: int
    seed: int  # of everything random
    kinds: Sequence[str] = ()  # which kinds of rounds; all if empty
    program: list[str] = field(default_factory=list)


@dataclass
class Result:
    """What came of it."""

    outages: list[Outage]  # of each round
    commits: Commits  # what the database says of its owners
    confirmed: int  # how many messages were confirmed
    redelivered: int  # how many deliveries were flagged
    lost_commits: Counter[Loss] = field(default_factory=Counter)
    suppressed: int = 0  # how many dead letters the client made of messages that it had before


async def run(plan: Plan, directory: Path, say: Callable[[str], None] = lambda text: None) -> Result:
    with Database(directory / "postgresql") as database:
        async with Pair(directory, database, Network.is_possible(), plan.program) as pair:
            pair.brokers[0].start()
            await asyncio.to_thread(pair.brokers[0].port)
            with database.primary.connect() as connection:
                Commits().record(connection)
            pair.brokers[1].start()
            await asyncio.to_thread(pair.brokers[1].wait_for_event, "broker.standby")
            try:
                result = await _under_load(plan, database, pair, say)
            except BaseException:
                for broker in pair.brokers:
                    say(f"the end of the log of broker {broker.number}:\n{broker.log[-5000:]}")
                say(f"the processes of the server: {database.activity()}")
                raise
            for broker in pair.brokers:
                await asyncio.to_thread(broker.stop)
            result.lost_commits = sum([proxy.lost for broker in pair.brokers for proxy in broker.proxies], Counter())
        result.suppressed = check_store(database)
    return result


async def _under_load(plan: Plan, database: Database, pair: Pair, say: Callable[[str], None]) -> Result:
    random = Random(plan.seed)
    async with TakeoverLoad(pair, random) as load:
        rounds = Rounds(database, pair, load, random)
        await load.probe.answer(time.monotonic())
        kinds: list[str] = []
        for number in range(1, plan.rounds + 1):
            if not kinds:
                kinds = list(plan.kinds or rounds.kinds)
                random.shuffle(kinds)
            outage = await rounds.run(kinds.pop())
            by = "the other broker" if outage.moved else "the same broker"
            say(f"round {number}: {outage.kind}, {outage.seconds:.2f} s, {by}; {load.confirmed} confirmed")
        await load.finish()
        await rounds.check()
        return Result(rounds.outages, rounds.commits, load.confirmed, load.redelivered)


def check_store(database: Database) -> int:
    """Fail if the store is damaged, or has messages of a queue or a topic: all were consumed.

    A client that is given a message again whose acknowledgement was lost makes a dead letter of it, as JMS clients do.
    """
    url = f"postgresql://quire@127.0.0.1:{database.primary.port}/postgres?schema={SCHEMA}"
    done = quire("store", "verify", "--store", url)
    assert done.returncode == 0, f"the store is damaged: {done.stdout} {done.stderr}"
    with open_for_reading(url) as opened:
        owners = [owner for owner in opened.store.destinations() if owner.kind != "stream"]
        pages = [(owner.name, opened.store.page(lane, 0, _ALL, _ALL)) for owner in owners for lane in owner.lanes]
    found = [(name, message.content) for name, page in pages for message in page.messages]
    left = [one for one in found if one[0] != _DEAD or b":Suppressing duplicate delivery" not in one[1]]
    assert not left, f"{len(left)} messages are left that were all acknowledged: {left[:3]}"
    return len(found)


def table(outages: Iterable[Outage]) -> str:
    by_kind: defaultdict[str, list[Outage]] = defaultdict(list)
    for outage in outages:
        by_kind[outage.kind].append(outage)
    lines = ["| kind | rounds | moved | least | median | 95 % | most |", "|---|---|---|---|---|---|---|"]
    for kind, found in sorted(by_kind.items()):
        seconds = sorted([outage.seconds for outage in found])
        shown = [seconds[0], _quantile(seconds, 0.5), _quantile(seconds, 0.95), seconds[-1]]
        moved = sum([outage.moved for outage in found])
        lines.append(f"| {kind} | {len(found)} | {moved} | " + " | ".join([f"{each:.2f} s" for each in shown]) + " |")
    return "\n".join(lines)


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
