"""The pages, by their paths. Names are in the query of a link: any text may be a name."""

from collections.abc import Awaitable, Callable

from quire.console.page import Page
from quire.console.pages import (
    connections,
    durables,
    groups,
    log,
    message,
    messages,
    overview,
    policies,
    queue,
    queues,
    schedule,
    send,
    store,
    streams,
    topics,
    topology,
    transactions,
    users,
)

Build = Callable[[Page], Awaitable[None]]

PAGES: dict[str, Build] = {
    "/": overview.build,
    "/topology": topology.build,
    "/queues": queues.build,
    "/queue": queue.build,
    "/topics": topics.build_list,
    "/topic": topics.build,
    "/streams": streams.build_list,
    "/stream": streams.build,
    "/durables": durables.build_list,
    "/durable": durables.build,
    "/groups": groups.build_list,
    "/group": groups.build,
    "/connections": connections.build,
    "/consumers": connections.build_consumers,
    "/schedule": schedule.build,
    "/transactions": transactions.build,
    "/messages": messages.build,
    "/message": message.build,
    "/send": send.build,
    "/users": users.build_users,
    "/rules": users.build_rules,
    "/tokens": users.build_tokens,
    "/policies": policies.build,
    "/store": store.build,
    "/log": log.build,
}
