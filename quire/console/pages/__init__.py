"""The pages, by their paths. Names are in the query of a link: any text may be a name."""

from collections.abc import Awaitable, Callable

from quire.console.page import Page
from quire.console.pages import broker, destinations, messages, users

Build = Callable[[Page], Awaitable[None]]

PAGES: dict[str, Build] = {
    "/": broker.build_overview,
    "/topology": broker.build_topology,
    "/queues": destinations.build_queues,
    "/queue": destinations.build_queue,
    "/topics": destinations.build_topics,
    "/topic": destinations.build_topic,
    "/streams": destinations.build_streams,
    "/stream": destinations.build_stream,
    "/durables": destinations.build_durables,
    "/durable": destinations.build_durable,
    "/groups": destinations.build_groups,
    "/group": destinations.build_group,
    "/connections": broker.build_connections,
    "/consumers": broker.build_consumers,
    "/schedule": broker.build_schedule,
    "/transactions": broker.build_transactions,
    "/messages": messages.build,
    "/message": messages.build_message,
    "/send": messages.build_send,
    "/users": users.build_users,
    "/rules": users.build_rules,
    "/tokens": users.build_tokens,
    "/policies": broker.build_policies,
    "/store": broker.build_store,
    "/log": broker.build_log,
}
