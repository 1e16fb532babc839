"""A shop's traffic, for a console to show: what flows, what waits, what fails, and names of any kind."""

import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

ORDER = json.dumps({"order": 4711, "items": [{"sku": "A-1", "count": 2}], "note": "fragile <b>glass</b>"})
HOSTILE = "<img src=x onerror=\"document.title='fired'\">"


class Demo:
    def __init__(self, api: str, stomp: int) -> None:
        self._api = api  # the broker's HTTP API, ``http://host:port``
        self._stomp = stomp  # its STOMP port on loopback
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._api}/api/v1{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def send(self, kind: str, name: str, body: str, count: int = 1, **headers: str) -> None:
        path = f"/{kind}s/{quote(name, safe='')}/messages"
        self.call("POST", path, {"body": body, "count": count, "headers": headers})

    def prepare(self) -> None:
        for name, count in (("orders.eu", 40), ("orders.us", 1160), ("billing", 900), ("mail", 12), ("audit", 3000)):
            self.send("queue", name, ORDER, count, region="EU", **{"content-type": "application/json"})
        self.call("POST", "/queues/orders.us/pause")
        self.send("queue", HOSTILE, "\0\x01\u202ehostile", 3, customer=HOSTILE)
        self.call("PUT", "/streams/clicks", {"partitions": 4})
        self.send("stream", "clicks", "click", 5000, key="a")
        member = {"member": "dashboard-1", "max": 500, "start": "earliest"}
        received = self.call("POST", "/streams/clicks/groups/dashboard/receive", member)
        handles = [message["handle"] for message in received["messages"]][:400]
        acknowledged = {"member": "dashboard-1", "handles": handles}
        self.call("POST", "/streams/clicks/groups/dashboard/acknowledge", acknowledged)
        self.call("PUT", "/durables/ledger/all-prices", {"topic": "prices"})
        self.send("topic", "prices", "17.50", 40)
        self.send("queue", "reminders", "later", 3, AMQ_SCHEDULED_DELAY="86400000")

    def start(self) -> None:
        for name, rate in (("queue/orders.eu", 400), ("topic/prices", 150), ("queue/billing", 60),
                           ("topic/VirtualTopic.orders", 80), ("stream/clicks", 200)):  # fmt: skip
            self._run(self._produce, name, rate)
        for name, client, delay in (
            ("queue/orders.eu", "packer-1", 0.0), ("queue/orders.eu", "packer-2", 0.0), ("topic/prices", "screen", 0.0),
            ("queue/billing", "billing-service", 0.5), ("queue/Consumer.crm.VirtualTopic.orders", "crm", 0.0),
            ("queue/Consumer.stats.VirtualTopic.orders", "stats", 3600.0),
        ):  # fmt: skip
            self._run(self._consume, name, client, delay)

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(10)

    def _run(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _connect(self, client: str) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._stomp), timeout=0.5)
        connection.sendall(f"CONNECT\naccept-version:1.2\nhost:x\nclient-id:{client}\n\n\0".encode())
        connection.recv(4096)
        return connection

    def _produce(self, name: str, rate: int) -> None:
        frame = f"SEND\ndestination:/{name}\npersistent:true\nkey:a\n\n{ORDER}\0".encode()
        with contextlib.suppress(OSError), self._connect(f"shop-{name.partition('/')[2]}") as connection:
            while not self._stopped.wait(0.1):
                connection.sendall(frame * (rate // 10))

    def _consume(self, name: str, client: str, delay: float) -> None:
        slow = "ack:client\nprefetch-count:20\n" if delay else "ack:auto\n"
        with contextlib.suppress(OSError), self._connect(client) as connection:
            connection.sendall(f"SUBSCRIBE\nid:1\ndestination:/{name}\n{slow}\n\0".encode())
            while not self._stopped.wait(delay):
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(1 << 16):
                        return
