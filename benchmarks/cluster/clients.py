"""The clients of the load that those of the crash test do not have: selectors, message groups, streams."""

from random import Random

from benchmarks.cluster.group_log import GroupLog
from benchmarks.cluster.stream_log import StreamLog
from tests.acceptance.crash.actors import Consumer, Place, Producer
from tests.acceptance.crash.ledger import Key, Ledger, Order
from tests.acceptance.crash.peer import Frame, Peer

COLOURS = ("red", "blue")
GROUPS = 5
"""How many message groups a queue has, and how many keys a stream."""


class ColourProducer(Producer):
    """Sends red and blue messages in turn."""

    def headers_of(self, number: int) -> dict[str, str]:
        return {"colour": COLOURS[number % 2]}


class ColourConsumer(Consumer):
    """Takes the messages of one colour, by a selector."""

    def __init__(self, place: Place, queue: str, ledger: Ledger, random: Random, colour: str) -> None:
        super().__init__(place, queue, ledger, random, 20, {"selector": f"colour = '{colour}'"})
        self._colour = colour

    def _take(self, frame: Frame, order: Order) -> None:
        super()._take(frame, order)
        if frame.headers["colour"] != self._colour:
            self._ledger.violations.append(f"{Key.of(frame.body)} came to a consumer that does not select it")


class ForwardedConsumer(Consumer):
    """Takes what was forwarded. What came again to the forwarder it may have forwarded after newer messages."""

    def _take(self, frame: Frame, order: Order) -> None:
        flagged = frame.headers.get("redelivered") == "true"
        self._ledger.deliver(frame.headers["message-id"], Key.of(frame.body), flagged)


class GroupProducer(Producer):
    """Sends messages of some message groups in turn."""

    def headers_of(self, number: int) -> dict[str, str]:
        return {"JMSXGroupID": str(number % GROUPS)}


class GroupConsumer(Consumer):
    """Takes messages of message groups."""

    def __init__(self, place: Place, queue: str, ledger: Ledger, random: Random, log: GroupLog) -> None:
        super().__init__(place, queue, ledger, random, 20)
        self._log = log
        self._order: Order | None = None

    async def _work(self, peer: Peer) -> None:
        try:
            await super()._work(peer)
        finally:
            self._log.lost(self._order)

    def _take(self, frame: Frame, order: Order) -> None:
        self._order = order
        key, group = Key.of(frame.body), frame.headers["JMSXGroupID"]
        flagged = frame.headers.get("redelivered") == "true"
        self._ledger.deliver(frame.headers["message-id"], key, flagged)
        self._log.deliver(group, key.number, order, flagged)

    def _settle(self, peer: Peer, portion: list[Frame], receipt: str) -> None:
        for frame in portion:
            self._log.acknowledge(frame.headers["JMSXGroupID"], Key.of(frame.body).number)
        super()._settle(peer, portion, receipt)


class PairProducer(Producer):
    """Sends to two queues in turn, so that a transaction has messages in both.

    Args:
        place: where the broker is.
        queues: both.
        ledger: that of both.
        numbered: whether it numbers its sends.
    """

    def __init__(self, place: Place, queues: tuple[str, str], ledger: Ledger, numbered: bool) -> None:
        super().__init__(place, queues[0], ledger, f"t-{queues[0]}", numbered, transaction=4, window=1)
        self._destinations = [f"/queue/{queue}" for queue in queues]

    def headers_of(self, number: int) -> dict[str, str]:
        return {"destination": self._destinations[number % 2]}


class StreamProducer(Producer):
    """Sends to a stream, with keys."""

    def __init__(self, place: Place, stream: str, ledger: Ledger, window: int) -> None:
        super().__init__(place, stream, ledger, f"s-{stream}", numbered=True, window=window)
        self._stream = stream

    def headers_of(self, number: int) -> dict[str, str]:
        return {"destination": f"/stream/{self._stream}", "partition-key": str(number % GROUPS)}


class GroupMember(Consumer):
    """Takes messages of a stream as a member of a consumer group."""

    def __init__(self, place: Place, stream: str, group: str, ledger: Ledger, random: Random, log: StreamLog) -> None:
        headers = {"destination": f"/stream/{stream}", "group": group, "start": "earliest"}
        super().__init__(place, stream, ledger, random, 20, headers)
        self._log = log

    def _take(self, frame: Frame, order: Order) -> None:
        key, flagged = Key.of(frame.body), frame.headers.get("redelivered") == "true"
        self._ledger.deliver(frame.headers["message-id"], key, flagged)
        self._log.deliver(int(frame.headers["partition"]), int(frame.headers["offset"]), key, flagged)
