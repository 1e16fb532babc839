"""What the SEND frames of one connection mean, by their heads: read once, and looked up from then on."""

from collections.abc import Mapping

from quire.broker.broker import Broker
from quire.broker.core.core import HoldCause, Target
from quire.broker.routing.addresses import read_destination
from quire.broker.routing.route import Route, route_of
from quire.broker.schedule import ScheduledSend
from quire.errors import TransactionTooLarge
from quire.protocols.stomp.frames import Head
from quire.server.stomp.client_session import ClientSession
from quire.server.stomp.route_pattern import RoutePattern
from quire.server.stomp.stomp_transactions import StompTransactions

MAX_ROUTES = 128
"""How many routes are kept: more than the decoder keeps heads, so that none is kept in vain."""


USER_ID = "JMSXUserID"
"""The header that says which user has sent a message."""

MAX_ALLOWED = 10_000
"""Of how many destinations it is kept that the client may send to them."""


class StompSends:
    """The SEND frames of a session."""

    def __init__(self, broker: Broker, session: ClientSession, transactions: StompTransactions) -> None:
        self.routes: dict[Head, Route] = {}  # of plain messages, by heads that were seen before
        self.destinations: dict[str, None] = {}  # where it has sent to lately, for operators
        self._broker = broker
        self._session = session
        self._transactions = transactions
        self._patterns: dict[Head | None, RoutePattern | None] = {}
        self._asks = False  # whether the client may not do everything
        self._known = broker.routing.known  # where a message goes, if that need not be found
        self._allowed: set[str] = set()
        self.version = broker.destinations.version  # of the destinations, when the first of the routes was found

    def begin(self) -> None:
        """The client has logged in."""
        if not self._session.guard.is_open:
            self._asks = True
            self._known = self._known_and_allowed

    def forget(self) -> None:
        """Forget all routes: destinations have come or gone since they were found, or there are too many."""
        self.routes.clear()
        self._patterns.clear()
        self._allowed.clear()
        self.version = self._broker.destinations.version

    def send(self, head: Head, body: bytes | bytearray) -> bool:
        """A SEND whose head was not seen before, or that is more than a plain one. False if it has to wait."""
        broker = self._broker
        headers = self._allowed_headers(head) if self._asks else head.headers
        session = self._session
        route = route_of(broker.routing, headers, session.temporaries, session.dropped, session.guard.sender)
        if len(self.destinations) >= MAX_ROUTES:
            self.destinations.clear()
        self.destinations[route.destination] = None
        if self.must_wait(route):
            return False
        stamp = b"\ntimestamp:%d\n" % broker.core.clock.now_ms()
        content = b"".join((broker.core.id_prefix, b"%d" % broker.core.next_message_id(), stamp, route.lines, body))
        if route.transaction is not None:
            self._transactions.named(route.transaction).send(route, content)
            return True
        broker.core.sent(self._session)  # with a duplicate too: what it repeats may be in a commit that fails
        if route.producer is not None and not broker.producers.take(route.producer, route.producer_sequence):
            return True
        route.target.send(content, route.expiration, route.priority, route.persistent)
        if route.producer is None and not (isinstance(route.target, ScheduledSend) and route.target.is_endless):
            if len(self.routes) >= MAX_ROUTES:
                self.forget()
            if head.base is None:
                self.routes[head] = route
            elif head.base not in self._patterns and headers is head.headers:
                self._learn(head, route)
        return True

    def _allowed_headers(self, head: Head) -> Mapping[str, str]:
        """The headers of a SEND that the client may send, with its user if that is asked for."""
        self._session.guard.check_send(read_destination(head.headers["destination"])[0])
        user = self._session.user_id
        return {**head.headers, USER_ID: user} if user else head.headers

    def _learn(self, head: Head, route: Route) -> None:
        """Others may come that are like a head, as it is like its base. The base may be one of another shard."""
        if len(self._patterns) >= MAX_ROUTES:
            self._patterns.clear()
        self._patterns[head.base] = RoutePattern(route, head) if RoutePattern.suits(route) else None

    def send_like(self, head: Head, stamp: bytes, body: bytes | bytearray) -> bool:
        """A SEND whose head is like another one; False if it has to be read in full."""
        pattern = self._patterns.get(head.base)
        if pattern is None:
            return False
        route, broker = pattern.route, self._broker
        target = pattern.target(head, self._known)
        lines, expiration = pattern.lines(head), pattern.expiration(head)
        if target is None or lines is None or expiration is None:
            return False
        content = b"".join((broker.core.id_prefix, b"%d" % broker.core.next_message_id(), stamp, lines, body))
        target.send(content, expiration, route.priority, route.persistent)
        return True

    def _known_and_allowed(self, destination: str) -> Target | None:
        """Where a message goes, if that is known, and known to be allowed."""
        target = self._broker.routing.known(destination)
        if target is not None and destination not in self._allowed:
            self._session.guard.check_send(read_destination(destination)[0])
            if len(self._allowed) >= MAX_ALLOWED:
                self._allowed.clear()
            self._allowed.add(destination)
        return target

    def must_wait(self, route: Route) -> bool:
        """Hold this producer if a limit it is subject to is exceeded; refuse it if the store takes no writes."""
        broker = self._broker
        if route.stored and broker.core.store_error is not None:
            raise broker.core.store_error
        cause = broker.core.hold_cause(stored=route.stored)
        if cause is None:
            return False
        limit = broker.core.settings.store.limit
        if cause is HoldCause.STORE and route.transaction is not None and broker.core.transaction_bytes >= limit:
            # Consumers cannot make room, and this producer's COMMIT would wait behind its SEND.
            text = f"the open transactions hold {limit} bytes of messages, as many as the store may (store.limit)"
            raise TransactionTooLarge(text, limit=limit)
        broker.core.flow.hold(self._session, cause, route.destination.removeprefix("/queue/"))
        return True
