"""The pages, by their paths. Names are in the query of a link: any text may be a name."""

from collections.abc import Awaitable, Callable

from quire.console.page import Page
from quire.console.pages import connections, groups, messages, overview, queues, store, streams, topics, topology, users

Build = Callable[[Page], Awaitable[None]]

PAGES: dict[str, Build] = {
    "/": overview.build,
    "/topology": topology.build,
    "/queues": queues.build_list,
    "/queue": queues.build,
    "/topics": topics.build_list,
    "/topic": topics.build,
    "/streams": streams.build_list,
    "/stream": streams.build,
    "/durables": topics.build_durables,
    "/durable": topics.build_durable,
    "/groups": groups.build_list,
    "/group": groups.build,
    "/connections": connections.build,
    "/consumers": connections.build_consumers,
    "/schedule": connections.build_schedule,
    "/transactions": connections.build_transactions,
    "/messages": messages.build,
    "/message": messages.build_message,
    "/send": messages.build_send,
    "/users": users.build_users,
    "/rules": users.build_rules,
    "/tokens": users.build_tokens,
    "/policies": store.build_policies,
    "/store": store.build,
    "/log": store.build_log,
}
