"""All doors pass the conformance suite of doors, over a stepped broker."""

from pathlib import Path
from typing import Any

from quire.protocols.openwire.commands import (
    AckType,
    ActiveMQQueue,
    ConnectionErrorCommand,
    ConnectionId,
    ConsumerId,
    ExceptionResponse,
    LocalTransactionId,
    MessageDispatch,
    TransactionType,
)
from quire.settings import load
from quire.testing.door_suite import PASSWORD, USER, Delivery, DoorClient, DoorSuite, Refused
from quire.testing.stepped import Frame, SteppedBroker, SteppedClient
from tests.conformance.doors.toy_client import stepped_client
from tests.unit.http.conftest import Api
from tests.unit.server.openwire.rig import OpenWireClient, Rig, id_of, texts, thrown


class TestToy(DoorSuite):
    def start(self, settings: Path) -> None:
        self.stepped = SteppedBroker(load(settings, {}, {}))

    def connect(self, password: str = PASSWORD) -> DoorClient:
        return stepped_client(self.stepped, password)


class StompClient(DoorClient):
    """A client of STOMP: each frame asks for a receipt."""

    def __init__(self, stepped: SteppedBroker, password: str) -> None:
        self._stepped = stepped
        self._client: SteppedClient = stepped.connect(headers={"login": USER, "passcode": password})
        self._raise()

    def _raise(self) -> None:
        for code in self._client.errors():
            raise Refused(code)

    def _frame(self, command: str, headers: dict[str, str], body: bytes = b"", tx: str = "") -> None:
        in_transaction = {"transaction": tx} if tx else {}
        self._client.frame(command, {**headers, **in_transaction, "receipt": "r"}, body)
        self._stepped.run()
        self._raise()
        assert self._client.receipts() == ["r"]

    def send(self, destination: str, body: str, tx: str = "") -> None:
        self._frame("SEND", {"destination": destination}, body.encode(), tx)

    def consume(self, destination: str, credit: int = 100) -> None:
        headers = {"destination": destination, "id": "c", "ack": "client-individual"}
        self._frame("SUBSCRIBE", {**headers, "activemq.prefetchSize": str(credit)})

    def take(self, count: int) -> list[Delivery]:
        self._stepped.run()
        return [
            Delivery(frame.body.decode(), int(frame.headers.get("JMSXDeliveryCount", 1)), frame)
            for frame in self._client.take("MESSAGE")
        ]

    def _settle(self, command: str, frame: Frame, tx: str = "") -> None:
        self._frame(command, {"id": frame.headers["ack"]}, tx=tx)

    def ack(self, delivery: Delivery, tx: str = "") -> None:
        self._settle("ACK", delivery.name, tx)

    def reject(self, delivery: Delivery) -> None:
        self._settle("NACK", delivery.name)

    def begin(self, tx: str) -> None:
        self._frame("BEGIN", {}, tx=tx)

    def commit(self, tx: str) -> None:
        self._frame("COMMIT", {}, tx=tx)

    def abort(self, tx: str) -> None:
        self._frame("ABORT", {}, tx=tx)

    def lose(self) -> None:
        self._client.vanish()


class TestStomp(DoorSuite):
    def start(self, settings: Path) -> None:
        self.stepped = SteppedBroker(load(settings, {}, {}))

    def connect(self, password: str = PASSWORD) -> DoorClient:
        return StompClient(self.stepped, password)


class JavaClient(DoorClient):
    """A client of OpenWire, as Java's: it counts failed deliveries itself, and tells of them with POSION acks."""

    def __init__(self, rig: Rig, password: str) -> None:
        self._rig = rig
        self._client: OpenWireClient = rig.negotiated()
        self._consumer: ConsumerId | None = None
        self._done(self._client.connection_info(user_name=USER, password=password))

    def _done(self, command: Any) -> None:
        number = self._client.request(command)
        self._rig.run()
        for answer in self._client.received():
            if isinstance(answer, ExceptionResponse | ConnectionErrorCommand):
                raise Refused(thrown(answer)[1])
            if getattr(answer, "correlation_id", None) == number:
                self._client.received().remove(answer)
                return
        raise AssertionError(f"no answer to {command}")

    def _tx(self, tx: str) -> LocalTransactionId | None:
        return LocalTransactionId(1, ConnectionId(self._client.id)) if tx else None

    def send(self, destination: str, body: str, tx: str = "") -> None:
        queue = ActiveMQQueue(destination.removeprefix("/queue/"))
        self._done(self._client.message(body, queue, transaction_id=self._tx(tx)))

    def consume(self, destination: str, credit: int = 100) -> None:
        info = self._client.consumer_info(ActiveMQQueue(destination.removeprefix("/queue/")), credit)
        self._done(info)

    def take(self, count: int) -> list[Delivery]:
        self._rig.run()
        dispatches = self._client.take(MessageDispatch)
        return [
            Delivery(text or "", each.redelivery_counter + 1, each)
            for text, each in zip(texts(dispatches), dispatches, strict=True)
        ]

    def ack(self, delivery: Delivery, tx: str = "") -> None:
        kind = AckType.STANDARD if tx else AckType.INDIVIDUAL
        self._done(self._client.ack([delivery.name], kind, transaction=self._tx(tx)))

    def reject(self, delivery: Delivery) -> None:
        """A Java client gives back what its application has not processed by closing the consumer."""
        dispatch: MessageDispatch = delivery.name
        destination = dispatch.destination
        assert isinstance(destination, ActiveMQQueue)
        assert dispatch.consumer_id is not None
        self._client.remove(dispatch.consumer_id, last_seen=id_of(dispatch).broker_sequence_id)
        self.consume(f"/queue/{destination.physical_name}")

    def _step(self, kind: TransactionType) -> None:
        self._done(self._client.step(kind, self._tx("t")))

    def begin(self, tx: str) -> None:
        self._step(TransactionType.BEGIN)

    def commit(self, tx: str) -> None:
        self._step(TransactionType.COMMIT_ONE_PHASE)

    def abort(self, tx: str) -> None:
        self._step(TransactionType.ROLLBACK)

    def lose(self) -> None:
        self._client.vanish()


class TestOpenWire(DoorSuite):
    def start(self, settings: Path) -> None:
        self.rig = Rig(load(settings, {}, {}))

    def connect(self, password: str = PASSWORD) -> DoorClient:
        return JavaClient(self.rig, password)


class PullClient(DoorClient):
    """A member of a group that pulls over HTTP: it has no connection, and its credit is what it asks for."""

    def __init__(self, api: Api, number: int, password: str) -> None:
        self._api, self._member, self._auth = api, f"m{number}", (USER, password)
        self._group, self._credit = "", 0
        self._held: dict[str, Delivery] = {}  # what it has, by handle
        self._fresh: list[Delivery] = []  # what of it was not taken yet
        self._call("GET", "/streams/none")

    def _call(self, method: str, path: str, **body: Any) -> Any:
        answer = self._api.call(method, path, auth=self._auth, json=body or None)
        if not answer.is_success and answer.status_code != 404:
            raise Refused(answer.json()["error"]["code"])
        return answer.json()

    def send(self, destination: str, body: str, tx: str = "") -> None:
        self._call(
            "POST", f"{destination.replace('/stream/', '/streams/')}/messages", body=body, headers={"partition": "0"}
        )

    def consume(self, destination: str, credit: int = 100) -> None:
        self._group, self._credit = f"{destination.replace('/stream/', '/streams/')}/groups/g", credit
        self._receive()

    def _receive(self) -> bool:
        """Ask for as many messages as there is credit for; whether some came."""
        if not (room := self._credit - len(self._held)):
            return False
        got = self._call(
            "POST", f"{self._group}/receive", member=self._member, max=room, start="earliest", held=list(self._held)
        )["messages"]
        self._fresh += [Delivery(each["body"], each["attempts"], each["handle"]) for each in got]
        self._held |= {each.name: each for each in self._fresh}
        return bool(got)

    def take(self, count: int) -> list[Delivery]:
        while self._receive():
            pass
        taken, self._fresh = self._fresh, []
        return taken

    def _settle(self, verb: str, delivery: Delivery) -> None:
        del self._held[delivery.name]
        self._call("POST", f"{self._group}/{verb}", member=self._member, handles=[delivery.name])

    def ack(self, delivery: Delivery, tx: str = "") -> None:
        self._settle("acknowledge", delivery)

    def reject(self, delivery: Delivery) -> None:
        self._settle("reject", delivery)

    def lose(self) -> None:
        """Its leases end."""
        for _ in range(4):
            self._api.stepped.advance(1)
            self._api.stepped.run()


class TestPull(DoorSuite):
    kind = "stream"
    has_transactions = False

    def start(self, settings: Path) -> None:
        self.api = Api(SteppedBroker(load(settings, {}, {})))
        self.clients = 0

    def connect(self, password: str = PASSWORD) -> DoorClient:
        self.clients += 1
        return PullClient(self.api, self.clients, password)
