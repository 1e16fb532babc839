"""What is large by itself: messages of 100 MB, and transactions of a hundred thousand acknowledgements."""

from benchmarks.operations.bench import Bench
from benchmarks.operations.queues import fill
from benchmarks.stomp_client import Consumer, send_all, send_frame
from quire.client import AckMode, Queue
from quire.client.sync import connect

BIG = 100_000_000


def large_messages(bench: Bench) -> None:
    """Messages of 100 MB are sent, and taken."""
    count, body = 3, b"x" * bench.scaled(BIG)
    with bench.measure(f"messages of {len(body):,} bytes are sent", count):
        send_all(bench.broker.target, [send_frame("large", body)] * count)
    taken = bench.measure("they are taken and acknowledged", count)
    with taken, connect(bench.broker.openwire) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer(Queue("large"), prefetch=1)
        for _ in range(count):
            message = consumer.receive(60)
            assert message is not None
            assert len(message.body) == len(body)
            message.acknowledge()


def transactions(bench: Bench) -> None:
    """A transaction acknowledges 100,000 messages; its consumer goes, and then it commits, as JMS programs do."""
    count = bench.scaled(100_000)
    fill(bench, "q", count, 10)
    consumer = Consumer(bench.broker.target, "/queue/q", count)
    ids = consumer.collect(count)
    consumer.link.send(b"BEGIN\ntransaction:t\n\n\0")
    with bench.measure("acknowledged in a transaction", count):
        consumer.acknowledge_ids(ids, "t")
        consumer.link.send(b"SEND\ndestination:/queue/other\nreceipt:all\n\nx\0")
        consumer.link.receive_until(b"receipt-id:all\n")
    with bench.measure("the consumer ends", count):
        consumer.unsubscribe()
    with bench.measure("the transaction is committed", count):
        consumer.link.send(b"COMMIT\ntransaction:t\nreceipt:done\n\n\0")
        consumer.link.receive_until(b"receipt-id:done\n")
    consumer.link.close()
