"""What other clients do meanwhile: messages go round, each is checked."""

import threading

from quire.client import AckMode, Queue
from quire.client.sync import Consumer, Producer, connect
from tests.acceptance.hostile.peer import SECONDS

PAUSE = 0.005
"""How long it rests between two messages, in seconds: it is to notice trouble, not to make any."""


class Traffic:
    """One client in a thread: it sends a message, waits for the confirmation, receives it, acknowledges it, and again.

    Args:
        url: the broker's.
        queue: its queue.

    Attributes:
        rounds: how many messages went round.
    """

    def __init__(self, url: str, queue: str) -> None:
        self.rounds = 0
        self._url = url
        self._queue = Queue(queue)
        self._error: BaseException | None = None
        self._begun = threading.Event()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._begun.wait()

    def _run(self) -> None:
        try:
            self._go_round()
        # Whatever it is, it is raised again where it is waited for.
        except BaseException as error:
            self._error = error
        finally:
            self._begun.set()

    def _go_round(self) -> None:
        with connect(self._url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
            producer, consumer = session.producer(self._queue), session.consumer(self._queue)
            while not self._ends.wait(PAUSE):
                self._round(producer, consumer)
                self._begun.set()
            self._round(producer, consumer)

    def _round(self, producer: Producer, consumer: Consumer) -> None:
        body = b"%d" % self.rounds
        producer.send(body)
        message = consumer.receive(SECONDS)
        assert message is not None, f"message {self.rounds} did not come back"
        assert (message.body, message.redelivered) == (body, False)
        message.acknowledge()
        self.rounds += 1

    def end(self) -> None:
        """End it, after one more message.

        Raises:
            BaseException: what went wrong with it.
        """
        self._ends.set()
        self._thread.join()
        if self._error:
            raise self._error
