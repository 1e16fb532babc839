"""Every page, with the link to it that the demonstration's broker has."""

from urllib.parse import urlencode


def link(path: str, **query: str) -> str:
    return f"{path}?{urlencode(query)}"


ALL_PAGES = {
    "overview": "/", "topology": "/topology", "queues": "/queues", "queue": link("/queue", name="billing"),
    "messages": link("/messages", kind="queue", name="orders.us"),
    "message": link("/message", kind="queue", name="orders.us", at="1"),
    "send": link("/send", kind="queue", name="orders.us"), "topics": "/topics", "topic": link("/topic", name="prices"),
    "streams": "/streams", "stream": link("/stream", name="clicks"), "durables": "/durables",
    "durable": link("/durable", client="ledger", name="all-prices"), "groups": "/groups",
    "group": link("/group", stream="clicks", name="dashboard"), "connections": "/connections",
    "consumers": "/consumers", "schedule": "/schedule", "transactions": "/transactions", "users": "/users",
    "rules": "/rules", "tokens": "/tokens", "policies": link("/policies", kind="queue", name="orders.eu"),
    "store": "/store", "log": "/log",
}  # fmt: skip
