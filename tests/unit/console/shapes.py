"""What a broker's API answers: entries of every kind, with names of any kind."""

from typing import Any

HOSTILE = [
    "<img src=x onerror=\"document.title='fired'\">", "it's \"quoted\" `${1+1}` {{7*7}}", "\u202eright to left\u202c",
    "nul\0and\x1b[31m", "a/b/../c?d=e#f%20g", "x" * 10_000, "..", "</script><script>document.title='fired'</script>",
]  # fmt: skip
"""Names that must stay text."""

NOW = 1_795_000_000_000


def names(count: int) -> list[str]:
    return HOSTILE + [f"orders.eu.{place:05d}" for place in range(count)]


def queue(name: str, place: int) -> dict[str, Any]:
    depth = place * 37 % 1000
    return {
        "name": name, "depth": depth, "bytes": depth * 1024, "in_flight": depth % 10, "resident_bytes": 0, "lanes": 1,
        "prioritized": False, "consumers": place % 3, "slow_consumers": 0, "grouped": False, "groups": 0,
        "subscriptions": [consumer(f"127.0.0.1:{50000 + at}", at) for at in range(3)],
        "parked_for_consumers": 0, "parked_for_groups": 0, "delayed": 0, "next_due": None, "enqueued": 123456 + place,
        "dequeued": 120000, "dispatched": 121000, "redelivered": 3, "expired": 0, "dead_lettered": place % 2,
        "suppressed": 0,
        "oldest_message_age_seconds": place * 3.7 if depth else None, "paused": place % 11 == 5, "producers_held": [],
        "blocked": None, "in_rate": place * 1.5, "out_rate": place * 1.25,
    }  # fmt: skip


def consumer(connection: str, place: int) -> dict[str, Any]:
    waits = {"cause": "no-credit", "text": HOSTILE[0]} if place == 1 else None
    return {
        "connection": connection, "id": HOSTILE[place], "ack": "client-individual", "selector": "region = 'EU'",
        "prefetch": 1000, "in_flight": 12, "priority": 0, "exclusive": False, "credit": 988, "extension": 0,
        "pulled": 0, "slow_seconds": None, "waits": waits,
    }  # fmt: skip


def overview() -> dict[str, Any]:
    return {
        "name": "quire", "version": "0.1.0", "state": "running", "uptime_seconds": 86461.0, "at": NOW,
        "in_rate": 48210.4, "out_rate": 47800.0, "depth": 1204331, "in_flight": 880,
        "oldest": {"kind": "queue", "name": HOSTILE[0], "age_seconds": 3912.0},
        "memory": {"used": 50 << 20, "limit": 64 << 20}, "store": {"used": 12 << 30, "limit": 93 << 30},
        "spool": {"used": 0, "limit": 9 << 30}, "disks": [{"disk": "store", "free": 80 << 30, "limit": 64 << 20}],
        "producers_held": [{
            "connection": "127.0.0.1:49202", "destination": "queue://orders", "cause": "store-limit",
            "age_seconds": 3.2, "limit_seconds": 30.0,
        }],
        "held": 1, "connections": 512, "consumers": 940,
        "counts": {"queues": 10008, "topics": 12, "durables": 3, "streams": 2, "groups": 5, "scheduled": 1,
                   "prepared": 1, "temporaries": 2},
        "history": {"objects": 3, "limit": 1000, "bytes": 10000}, "sampled_seconds": 0.4,
        "attention": [
            {"severity": "critical", "code": "no-consumer", "kind": "queue", "name": HOSTILE[0],
             "text": f"queue {HOSTILE[0]} has 1,204 messages and no consumer", "since_seconds": 3912.0,
             "advice": "Start a consumer, or purge the queue."},
            {"severity": "warning", "code": "group-lags", "kind": "group", "name": "orders/billing",
             "text": "group billing of stream orders lags by 120,000 messages", "since_seconds": None,
             "advice": "Add members, or more partitions."},
        ],
        "attention_left_out": 3,
    }  # fmt: skip


def history(query: dict[str, str]) -> dict[str, Any]:
    count = 100
    at = [NOW + 3000 * place for place in range(count)]
    return {
        "of": query["of"], "name": query.get("name"), "span": query["span"], "step_seconds": 3.0, "at": at,
        "in": [1000.0 + 300 * ((place * 7) % 13) / 13 for place in range(count)],
        "out": [900.0 + 350 * ((place * 5) % 11) / 11 for place in range(count)],
        "depth": [5000 + 40 * place for place in range(count)], "oldest": [float(place) for place in range(count)],
    }  # fmt: skip


def node(identity: str, kind: str, name: str, depth: int | None = None, role: str | None = None) -> dict[str, Any]:
    return {"id": identity, "kind": kind, "name": name, "depth": depth, "in_rate": 1.0, "out_rate": 1.0, "role": role,
            "count": 1, "waits": None}  # fmt: skip


def edge(first: str, second: str, kind: str, rate: float | None, waits: str | None = None) -> dict[str, Any]:
    wait = {"cause": "no-consumer", "text": waits, "messages": 1204} if waits else None
    return {"from": first, "to": second, "kind": kind, "rate": rate, "estimated": False, "waits": wait}


FIXED: dict[str, Any] = {
    "topology": {
        "nodes": [
            node("p1", "producer", "shop-frontend"), node("p2", "producer", HOSTILE[0]),
            node("q1", "queue", "orders.eu", 12), node("q2", "queue", "billing", 4321),
            node("t1", "topic", "VirtualTopic.orders", role="virtual-topic"),
            node("q3", "queue", "Consumer.crm.VirtualTopic.orders", 3),
            node("q4", "queue", "Consumer.stats.VirtualTopic.orders", 99201),
            node("q5", "queue", "ActiveMQ.DLQ", 17, "dead-letter"), node("s1", "stream", "clicks", 120000),
            node("g1", "group", "clicks/dashboard", 210), node("d1", "durable", "ledger/all-prices", 40),
            node("t2", "topic", "prices"), node("c1", "consumer", "packer"), node("c2", "consumer", "billing-service"),
            node("c3", "consumer", "crm"), node("c4", "consumer", "dashboard"),
        ],
        "edges": [
            edge("p1", "q1", "send", 1200.0), edge("p1", "t1", "send", 340.0), edge("p2", "q2", "send", 95.0),
            edge("t1", "q3", "forward", 340.0), edge("t1", "q4", "forward", 340.0),
            edge("q1", "c1", "deliver", 1190.0), edge("q2", "c2", "deliver", 20.0, HOSTILE[0]),
            edge("q3", "c3", "deliver", 340.0), edge("q2", "q5", "dead-letter", 0.2), edge("q5", "q2", "forward", None),
            edge("p1", "s1", "send", 800.0), edge("s1", "g1", "subscribe", 780.0), edge("g1", "c4", "deliver", 780.0),
            edge("p2", "t2", "send", 55.0), edge("t2", "d1", "subscribe", 55.0, "the subscription is offline"),
        ],
        "left_out": 12,
    },
    "operations": {"operations": [{
        "id": "7", "action": "move", "target": "queue orders.eu", "by": "127.0.0.1:40000", "state": "running",
        "done": 41000, "of": 120000, "started_at": NOW, "ended_at": None, "error": None,
    }]},
    "store": {
        "url": "lmdb:///var/lib/quire/store", "format": 2, "sync": "always", "writable": True, "error": HOSTILE[0],
        "commits": 5953, "failures": 1, "messages": {"used": 12 << 30, "limit": 93 << 30},
        "spool": {"used": 0, "limit": 9 << 30}, "file_bytes": 13 << 30, "free_bytes": 1 << 30,
        "disks": [{"disk": "store", "free": 80 << 30, "limit": 64 << 20}], "lanes": 10020, "destinations": 10022,
        "destinations_limit": 50000, "subscriptions": 1, "subscriptions_limit": 50000,
        "last_verify": {"at": NOW, "seconds": 1.8, "records": 50635, "findings": 0, "first": []},
    },
    "log": {"events": [
        {"number": place, "at": NOW + place * 1000, "level": ("info", "warning", "error")[place % 3],
         "event": "queue.paused", "text": f"queue {HOSTILE[place % 8]} was paused, by 127.0.0.1:34588", "data": {}}
        for place in range(40)
    ], "next": 40, "lost": 0},
    "policies": {
        "base": [{"key": "retry_maximum", "value": 6, "origin": "default"},
                 {"key": "dead_letter", "value": "ActiveMQ.DLQ", "origin": "file quire.toml"}],
        "entries": [{"destination": "queue://orders.>", "origin": "file quire.toml",
                     "values": {"prioritized": True, "retry_maximum": 20}}],
    },
    "users": {"users": [
        {"name": "admin", "roles": ["administrator"], "certificates": [], "has_password": True, "disabled": False,
         "in_file": False},
        {"name": HOSTILE[0], "roles": [], "certificates": ["CN=shop"], "has_password": False, "disabled": True,
         "in_file": True},
    ]},
    "rules": {"rules": [
        {"id": "role-operator", "subject": "role:operator", "effect": "allow", "actions": ["manage"],
         "destination": ">", "origin": "built-in"},
        {"id": "r1", "subject": "user:shop", "effect": "allow", "actions": ["read", "write"],
         "destination": "queue://orders.>", "origin": "runtime"},
        {"id": "r2", "subject": f"user:{HOSTILE[0]}", "effect": "deny", "actions": ["read"],
         "destination": "queue://audit.>", "origin": "settings"},
    ]},
    "tokens": {"tokens": [{"id": "k7Q2", "owner": "admin", "created": NOW, "until": NOW + 86_400_000,
                           "roles": None, "text": "console"}]},
}  # fmt: skip
"""What does not depend on the request."""

POLICY = {
    "destination": "queue://orders.eu",
    "entries": [{"destination": "queue://orders.>", "origin": "file quire.toml", "applies": ["prioritized"],
                 "overridden": []}],
    "values": [{"key": "prioritized", "value": True, "origin": "queue://orders.>",
                "text": "Whether messages of higher priority are delivered first."}],
}  # fmt: skip

TOPIC = {
    "name": HOSTILE[0], "depth": 40, "bytes": 4000, "resident_bytes": 0, "prioritized": False, "consumers": 2,
    "slow_consumers": 1, "durables": 1, "offline_durables": 1, "pending": 0, "backlog": 40, "enqueued": 100,
    "dispatched": 90, "dequeued": 80, "redelivered": 0, "expired": 0, "discarded_for_pending_limit": 0,
    "discarded_for_memory_limit": 0, "dead_lettered": 0, "suppressed": 0,
    "producers_held": [], "in_rate": 150.0, "out_rate": 150.0,
    "subscriptions": [
        {"client_id": None, "name": None, "connection": "127.0.0.1:50001", "id": HOSTILE[1], "selector": None,
         "prefetch": 32767, "in_flight": 0, "pending": 0, "discarded": 0, "slow_seconds": 3.0},
        {"client_id": HOSTILE[0], "name": HOSTILE[2], "connection": None, "id": None, "selector": "a = 'b'",
         "prefetch": 0, "in_flight": 0, "pending": 40, "discarded": 0, "slow_seconds": None},
    ],
}  # fmt: skip

DURABLE: dict[str, Any] = {
    "client_id": HOSTILE[0], "name": HOSTILE[2], "topic": "prices", "selector": None, "no_local": False, "depth": 40,
    "in_flight": 1, "bytes": 4000, "resident_bytes": 0, "holes": 0, "delayed": 0, "enqueued": 100, "dequeued": 60,
    "dispatched": 61, "redelivered": 0, "expired": 0, "dead_lettered": 0,
    "suppressed": 0, "oldest_message_age_seconds": 12.0,
    "offline_seconds": 60.0, "blocked": None, "consumers": [], "in_rate": 1.0, "out_rate": 0.0,
}  # fmt: skip

STREAM_ROW = {
    "name": HOSTILE[0], "partitions": 4, "records": 5000, "bytes": 500000, "resident_bytes": 0, "appended": 5000,
    "groups": 1, "members": 2, "readers": 0, "pins": 1, "in_rate": 200.0, "out_rate": 190.0,
}  # fmt: skip

STREAM = {
    "name": HOSTILE[0], "records": 5000, "bytes": 500000, "resident_bytes": 0, "appended": 5000, "readers": 0,
    "policy": {"partition_key_header": "key", "retention_time": -1, "retention_bytes": 0, "retry": "lane"},
    "partitions": [{"partition": 0, "earliest": 1, "end": 5001, "records": 5000, "bytes": 500000, "lane": 7, "gaps": 0,
                    "oldest_timestamp": NOW, "newest_timestamp": NOW}],
    "groups": [{"name": HOSTILE[1], "order": "concurrent", "members": 2, "lag": 10, "in_flight": 3, "retries": None}],
    "pins": [{"name": HOSTILE[4], "offsets": {"0": 1}, "until": NOW}],
}  # fmt: skip

COUNTERS = dict.fromkeys(
    ("delivered", "acknowledged", "redelivered", "timed_out", "late", "stale", "fenced", "dead_lettered", "lost"), 5
)

GROUP_ROW = {
    "stream": "clicks", "name": HOSTILE[0], "mode": "clustering", "order": "concurrent", "strategy": "even", "epoch": 3,
    "partitions": 4, "members": 2, "connected": 2, "lag": 1200, "in_flight": 10, "retries": 4,
    "oldest_message_age_seconds": 61.0, "blocked": {"cause": "consumer-busy", "age_seconds": 4.0},
    "counters": COUNTERS, "in_rate": 200.0, "out_rate": 190.0,
}  # fmt: skip

GROUP = GROUP_ROW | {
    "selector": None, "start": "earliest", "created": NOW,
    "partition_states": [{
        "partition": 0, "base": 100, "end": 1300, "lag": 1200, "in_flight": 10, "owners": [HOSTILE[0]], "holes": 1,
        "ack_set_bytes": 20, "waiting_retries": 0, "lost": 0, "oldest_message_age_seconds": 61.0, "blocked": None,
    }],
    "retry_lane": {"depth": 4, "in_flight": 0, "delayed": 4, "next_due": NOW, "oldest_message_age_seconds": 3.0,
                   "blocked": None},
    "group_members": [{
        "id": HOSTILE[0], "static": False, "room": "", "connected": True, "connection": "127.0.0.1:50001", "since": NOW,
        "partitions": [0, 1], "revoking": [], "in_flight": 10, "prefetch": 32, "consume_timeout_seconds": 900.0,
        "lease_ends_seconds": 800.0,
    }],
}  # fmt: skip

CONNECTION = {
    "address": "127.0.0.1:50001", "client_id": HOSTILE[0], "protocol": "STOMP 1.2", "connected_seconds": 3600.0,
    "consumers": 2, "destinations": ["queue://orders.eu", f"queue://{HOSTILE[0]}"], "in_flight": 10, "held": False,
    "writable": True,
}  # fmt: skip

CONSUMER = {
    "client_id": HOSTILE[0], "protocol": "STOMP 1.2", "destination": f"queue://{HOSTILE[0]}",
    "consumer": consumer("127.0.0.1:50001", 1),
}  # fmt: skip

SCHEDULED = {
    "id": "ID:1-1", "message_id": "ID:2", "destination": f"queue://{HOSTILE[0]}", "due": NOW, "delay": 1000,
    "period": 60000, "repeat": 3, "left": 2, "cron": "", "priority": 4, "persistent": True, "time_to_live": None,
    "size": 100,
}  # fmt: skip

PREPARED = {
    "xid": "1-" + "ab" * 20, "state": "prepared", "outcome": "", "age_seconds": 90.0, "messages": 3,
    "acknowledgements": 2, "bytes": 3000,
}  # fmt: skip


def message(sequence: int) -> dict[str, Any]:
    return {
        "sequence": sequence, "offset": sequence, "partition": 0, "id": HOSTILE[0], "size": 3000000, "timestamp": NOW,
        "expiration": 0, "priority": 4, "persistent": True, "redelivered": True, "deliveries": 2, "failures": 1,
        "last_cause": HOSTILE[0], "not_before": None, "in_flight": False,
        "headers": {name[:200]: name for name in HOSTILE}, "body": '{"order": [1, 2], "note": "<b>'
        + HOSTILE[0].replace('"', "") + '"}', "body_encoding": "text", "body_kind": "json", "body_size": 3000000,
        "body_cut": True, "previous": sequence - 1 or None, "next": sequence + 1,
        "ledger": [{"event": "dispatched", "at": NOW, "subscriber": HOSTILE[0], "consumer": HOSTILE[1]}],
    }  # fmt: skip
