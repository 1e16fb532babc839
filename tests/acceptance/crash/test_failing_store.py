"""A store that fails under load: clients are told, consumers go on, the broker recovers by itself, nothing is lost."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from tests.acceptance.crash.broker_process import BrokerProcess
from tests.acceptance.crash.load import Load
from tests.acceptance.crash.rounds import check_store

pytestmark = pytest.mark.slow

MakeBroker = Callable[..., BrokerProcess]


@pytest.mark.parametrize(
    ("fault", "point", "code"), [("no-space", "inside", "store-full"), ("io-error", "before", "store-failed")]
)
def test_failing_commits_lose_nothing(
    store_url: str, make_broker: MakeBroker, fault: str, point: str, code: str
) -> None:
    broker = make_broker(store_url)
    broker.start_with_fault(fault, point, nth=40, times=2)

    async def run() -> set[str]:
        async with Load(Random(5)) as load:
            load.place.port = await asyncio.to_thread(broker.port)
            await asyncio.to_thread(broker.wait_for_event, "store.recovered")
            await load.finish()
        return load.errors

    assert asyncio.run(run()) == {code}
    broker.stop()
    assert check_store(store_url) == 0
    failed = broker.events("store.failed")
    assert [event["code"] for event in failed] == [code]
    assert len(broker.events("store.recovered")) == 1
