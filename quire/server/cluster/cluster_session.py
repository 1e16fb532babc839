"""A client's session in a cluster: a session of its own broker, and one at each other shard that it has to do with.

What concerns one shard is handed to the session there, and not looked at again: routes, consumers, parts. What concerns
several is gathered here: sends to a list, consumers of patterns (``SpreadConsumer``), transactions
(``ClusterTransactions``), requests to all. A front has no shard: there is no session of its own broker.

To its sessions it is the door, and tells the real one. If a link or the owner of a shard is lost, the client has to
connect again, and has done nothing: at all other shards nothing counts as a failed delivery. A shard that is used for
advisories alone is forgotten instead, and subscribed at again.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from quire.broker.admission import LimitedTarget, SizeLimit
from quire.broker.broker import Broker
from quire.broker.core.subscription import Subscription
from quire.broker.dead_letter import ORIGIN
from quire.broker.routing.addresses import Address, Scope, read_destination
from quire.broker.transactions.decisions import Participant
from quire.cluster.cluster_map import FRONT
from quire.cluster.link import Opening as LinkOpening
from quire.cluster.remote_session import RemoteConsumer, RemotePart, RemoteSession, RemoteTarget
from quire.cluster.spread_consumer import SpreadConsumer, SpreadPart
from quire.destination import ADVISORIES, Destination, DestinationKind
from quire.errors import (
    DestinationInUse,
    InvalidArgument,
    LimitExceeded,
    QuireError,
    ShardMoved,
    TransactionRolledBack,
    UnknownSubscription,
)
from quire.message import Message, with_headers
from quire.scheduler import Timer
from quire.security import Access
from quire.server.cluster.cluster_transactions import (
    Answers,
    ClusterTransactions,
    error_unless,
    first_error,
)
from quire.server.cluster.links import Links
from quire.server.cluster.shard_transactions import ShardTransactions
from quire.server.cluster.verb_door import OwnerGuard
from quire.sessions.base import (
    PLAIN,
    UNKNOWN,
    USUAL,
    Consumer,
    ConsumerKind,
    Door,
    Handles,
    Leaving,
    LeavingKind,
    Opening,
    Part,
    Route,
    Seen,
    Sending,
    Session,
    Settlement,
    Step,
    SubscribeSpec,
    These,
    Token,
    Traits,
    Tx,
    UpTo,
    What,
)
from quire.sessions.consumers import first_of, prefetch_of, refuse_temporary
from quire.sessions.rights import Gate, Guard
from quire.sessions.session import OF_THE_BROKER, LocalSession

PROTOCOL = "verbs"
"""What is spoken on the virtual connections of clients."""

MakesLocalSession = Callable[[Broker, Guard, Door, Iterator[int]], LocalSession]
"""Makes the session of a client at the own broker; the numbers are those of its parts."""

REJOIN = 1.0
"""After how many seconds it is tried again to subscribe consumers of advisories at shards that were lost."""


class _Asked:
    __slots__ = ("gathering", "shard")

    def __init__(self, gathering: "_Gathering", shard: int) -> None:
        self.gathering = gathering
        self.shard = shard

    def __len__(self) -> int:
        return 1

    def answered(self, answer: Any) -> None:
        gathering = self.gathering
        gathering.answers[self.shard] = answer
        if len(gathering.answers) == gathering.awaited:
            gathering.then(gathering.answers)


class _Gathering:
    """The answers to one verb, which several shards were asked for."""

    __slots__ = ("answers", "awaited", "then")

    def __init__(self, awaited: int, then: Callable[[Answers], None]) -> None:
        self.answers: dict[int, Any] = {}
        self.awaited = awaited
        self.then = then


class SplitTarget:
    """Takes messages for destinations of several shards: each gets them for its own ones."""

    def __init__(self, text: str, parts: dict[int, Route], limit: SizeLimit | None) -> None:
        self.parts = parts
        self.limit = limit
        self._origin = {ORIGIN: text}

    def marked(self, content: bytes) -> bytes:
        return with_headers(content, self._origin)

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        content = self.marked(content)
        for route in self.parts.values():
            route.target.send(content, expiration, priority, persistent)

    transfer = send

    def expect_groups(self) -> None:
        """The routes say it."""


class _Place(NamedTuple):
    shard: int
    addresses: tuple[Address, ...]


class ClusterSession:
    """One client. ``own`` is the shard of this process, or ``FRONT``; ``local`` the session there, None at a front."""

    def __init__(
        self, broker: Broker, gate: Gate, links: Links, shared: ShardTransactions, access: Access, door: Door,
        local: MakesLocalSession = LocalSession,
    ) -> None:  # fmt: skip
        self.name = door.name
        self.user = access.principal.name
        self.client_id: str | None = None
        self.own = links.cluster_map.own
        self.parts: dict[int, Part] = {}
        self._core = broker.core
        self._routing = broker.routing
        self._links = links
        self._map = links.cluster_map
        self._shared = shared
        self._access = access
        self._door = door
        self._numbers = count()
        guard = OwnerGuard(gate, access, self._map)
        self.local = None if self.own == FRONT else local(broker, guard, self, self._numbers)
        self._remotes: dict[int, RemoteSession] = {}
        self._used: set[int] = set()  # the other shards that the client has more at than consumers of advisories
        self._who = Opening("")
        self._claim: Any = _NOT_ASKED
        self._writable = True
        self._consumers: dict[Consumer, _Place] = {}  # those of one other shard
        self._spread: dict[SpreadConsumer, dict[int, tuple[Address, ...]]] = {}
        self._whole: dict[Consumer, tuple[int, SpreadConsumer]] = {}  # of the consumers at shards
        self._coming: tuple[int, SpreadConsumer] | None = None  # what is subscribing here
        self._damaged: dict[SpreadConsumer, int] = {}
        self._transactions = ClusterTransactions(self)
        self._rejoining: Timer | None = None
        self._has_left = self._waits = self._is_blameless = False

    # What its door asks.

    @property
    def writable(self) -> bool:
        return self._writable

    @writable.setter
    def writable(self, writable: bool) -> None:
        self._writable = writable
        if self.local is not None:
            self.local.writable = writable
        for remote in self._remotes.values():
            remote.writable = writable

    def drained(self) -> None:
        self.writable = True
        if self.local is not None:
            self.local.drained()

    @property
    def subscriptions(self) -> dict[int, Subscription]:
        return {} if self.local is None else self.local.subscriptions

    @property
    def version(self) -> int:
        return self._links.generation + (0 if self.local is None else self.local.version)

    @property
    def is_awaited(self) -> bool:
        return any([remote.awaits for remote in self._remotes.values()])

    @property
    def restricted(self) -> bool:
        if self.local is not None and self.local.restricted:
            return True
        return any([remote.restricted for remote in self._remotes.values()])

    # Where things are.

    @property
    def _home(self) -> int:
        """The shard that stands in for a front, which has none itself."""
        return self._map.shard_of_client(self._who.client_id or self.name) if self.own == FRONT else self.own

    def _shard_of(self, address: Address) -> int:
        """The shard that takes messages for a destination; of what is spread the own one."""
        shard = self._map.shard_of(Destination(address.kind, address.name))
        return self._home if shard == FRONT else shard

    def _is_spread(self, address: Address) -> bool:
        common = address.scope is Scope.COMMON
        return common and self._map.is_spread(Destination(address.kind, address.name))

    def _consumed(self, addresses: Iterable[Address]) -> dict[int, tuple[Address, ...]]:
        """At which shards destinations are consumed, and which of them at each."""
        shards: dict[int, tuple[Address, ...]] = {}
        for address in addresses:
            for shard in self.every() if self._is_spread(address) else [self._shard_of(address)]:
                shards[shard] = (*shards.get(shard, ()), address)
        return dict(sorted(shards.items()))

    def every(self) -> Iterable[int]:
        return range(self._map.shards)

    def at(self, shard: int) -> Session:
        """The client's session at a shard, which it uses from now on; ``LimitExceeded`` with too many clients."""
        if shard == self.own:
            assert self.local is not None
            return self.local
        remote = self._remote(shard)
        self._used.add(shard)
        return remote

    def _remote(self, shard: int) -> RemoteSession:
        """The client's session at another shard; the virtual connection waits until the shard can be reached."""
        known = self._remotes.get(shard)
        if known is not None:
            return known
        principal = self._access.principal
        origin = self._access.origin
        opening = LinkOpening(PROTOCOL, principal.name, sorted(principal.roles), self.name, origin.door)
        remote = RemoteSession(self, shard, self._numbers, self._links.charge, self._gone, self.user)
        remote.connection = self._links.open(shard, opening, remote)
        remote.writable = self._writable
        self._remotes[shard] = remote
        who = self._who
        is_asked = who.client_id is not None and not who.is_made_up
        is_home = is_asked and self._map.shard_of_client(who.client_id or "") == shard
        who = who._replace(claims=who.claims and is_home, announced=False)
        then = partial(self._claimed if is_home else self._introduced, shard)
        remote.open(who, _Asked(_Gathering(1, then), shard))
        return remote

    def _introduced(self, shard: int, answers: Answers) -> None:
        """A shard has taken the client, or not: then it connects again."""
        error = first_error(answers)
        if error is not None and not self._has_left:
            self._break_off(ShardMoved(f"shard {shard} does not take the client: {error}", shard=shard))

    def _all(self) -> list[Session]:
        own: list[Session] = [] if self.local is None else [self.local]
        return [*own, *self._remotes.values()]

    def _is_full(self, shards: Iterable[int]) -> bool:
        remotes = [self._remotes.get(shard) for shard in shards]
        return self.is_awaited or any([remote is not None and remote.restricted for remote in remotes])

    # Answers.

    def ask(
        self, shards: Iterable[int], verb: Callable[[int, Session, Token], bool], then: Callable[[Answers], None]
    ) -> bool:  # fmt: skip
        """Have shards do something, and make a call with all answers; False if one has to wait: nothing was done."""
        ordered = sorted(shards, key=lambda shard: shard != self.own)
        if self._is_full(ordered):
            return False
        gathering = _Gathering(len(ordered), then)
        for shard in ordered:
            asked = _Asked(gathering, shard)
            try:
                if not verb(shard, self.at(shard), asked):
                    assert shard == self.own, "a shard that is not full has to wait"
                    return False
            except QuireError as error:
                asked.answered(error)
        return True

    def confirm_here(self, token: Token) -> None:
        """A token is of something that is done already."""
        if token is None:
            return
        if self.local is not None:
            self.local.confirm(token)
        else:
            self._core.steps.add(partial(self._confirm_later, token), "an answer of a front", stores=False)

    def _confirm_later(self, token: Token) -> bool:
        if not self._has_left:
            self._door.confirmed([token])
        return False

    def answer(self, token: Token, answer: Any) -> None:
        """A verb is done: with a result, with an error, or None."""
        if isinstance(answer, QuireError):
            self._door.failed(token, answer)
        elif token is not None and answer is None:
            self._door.confirmed([token])
        elif token is not None:
            self._door.answered(token, answer)

    def _answer_first_error(self, token: Token, answers: Answers) -> None:
        self.answer(token, first_error(answers))

    def break_off(self, token: Token, error: QuireError) -> None:
        if not self._has_left:
            self._door.failed(token, error)
            self._break_off(TransactionRolledBack(f"{error.code}: {error}", cause=error.code))

    # The client introduces itself.

    def open(self, who: Opening, token: Token = None) -> bool:
        """The client introduces itself; the shard that its client id falls to says whether it may have that."""
        self._who = who
        if who.client_id is not None and who.claims and not who.is_made_up:
            home = self._map.shard_of_client(who.client_id)
            if home != self.own:
                if self._claim is _NOT_ASKED:
                    self._claim = _ASKED
                    self.at(home)
                if self._claim is _ASKED:
                    return False
                if isinstance(self._claim, QuireError):
                    raise self._claim
                who = who._replace(claims=False)
        if self.local is not None and not self.local.open(who, token):
            return False
        self.client_id = who.client_id
        if self.local is None:
            if who.takeover is not None:  # there the older session ends
                self.at(self._home)
            self.confirm_here(token)
        return True

    def _claimed(self, shard: int, answers: Answers) -> None:
        if self._claim is _ASKED:
            self._claim = first_error(answers)
            self._door.go_on()
        else:
            self._introduced(shard, answers)

    # Input, and what is confirmed of it.

    def takes_input(self) -> None:
        if self.local is not None:
            self.local.takes_input()

    def took_input(self, sent: bool) -> None:
        if self.local is not None:
            self.local.took_input(sent)
        for remote in self._remotes.values():
            remote.close_run()
        if any([remote.connection.is_over_limit for remote in self._remotes.values()]):
            text = "what clients have sent to shards that do not take it is more than it may be"
            self._break_off(LimitExceeded(text))

    def confirm(self, token: Token) -> None:
        if token is None:
            return
        sessions = self._all()
        gathering = _Gathering(len(sessions), lambda answers: self.answer(token, first_error(answers)))
        if not sessions:
            self.confirm_here(token)
        for number, session in enumerate(sessions):
            session.confirm(token if len(sessions) == 1 else _Asked(gathering, number))

    # Sends.

    def route(self, destination: str, traits: Traits = PLAIN) -> Route:
        shards: dict[int, list[Address]] = {}
        addresses, _ = read_destination(destination)
        for address in addresses:
            shards.setdefault(self._shard_of(address), []).append(address)
        if len(shards) == 1:
            (shard,) = shards
            return self.at(shard).route(destination, traits)
        parts = {
            shard: self.at(shard).route(",".join([str(address) for address in its]), traits)
            for shard, its in sorted(shards.items(), key=lambda item: item[0] != self.own)
        }
        target = SplitTarget(destination, parts, self._routing.size_limit(addresses))
        return Route(destination, target, [], is_plain=False)

    def accept(
        self, route: Route, content: bytes, how: Sending = USUAL, *, tx: Tx | None = None, token: Token = None
    ) -> bool:  # fmt: skip
        target = route.target
        if self.is_awaited:
            return False
        if isinstance(target, SplitTarget):
            return self._accept_split(target, content, how, tx, token)
        session = target.session if type(target) is RemoteTarget else self.local
        assert session is not None
        if tx is not None:
            shard = target.session.shard if type(target) is RemoteTarget else self.own
            if self._is_full([shard]):
                return False
            self._transactions.work(tx, shard)
        return session.accept(route, content, how, tx=tx, token=token)

    def _accept_split(
        self, target: SplitTarget, content: bytes, how: Sending, tx: Tx | None, token: Token
    ) -> bool:  # fmt: skip
        """A message to destinations of several shards. Its token comes when all have it."""
        try:
            if target.limit is not None:
                LimitedTarget(target, target.limit).check(content)
        except QuireError as error:
            if tx is not None and token is None:
                self._transactions.spoil(tx, error)
            raise
        content = target.marked(content)

        def send(shard: int, session: Session, asked: Token) -> bool:
            if tx is not None:
                self._transactions.work(tx, shard)
            return session.accept(target.parts[shard], content, how, tx=tx, token=asked)

        def sent(answers: Answers) -> None:
            error = first_error(answers)
            if error is not None and tx is not None and token is None:
                self._transactions.spoil(tx, error)
            self.answer(token, error)

        return self.ask(target.parts, send, sent)

    # Consumers.

    def subscribe(self, spec: SubscribeSpec, token: Token = None) -> Consumer:
        shards = self._consumed(spec.addresses)
        if len(shards) > 1:
            return self._subscribe_spread(spec, shards, token)
        (shard,) = shards
        session = self.at(shard)
        if spec.kind is ConsumerKind.DURABLE:
            return self._subscribe_durable(spec, shard, token)
        consumer = session.subscribe(spec, token)
        if shard != self.own:
            self._consumers[consumer] = _Place(shard, spec.addresses)
        return consumer

    def _subscribe_spread(
        self, spec: SubscribeSpec, shards: dict[int, tuple[Address, ...]], token: Token
    ) -> SpreadConsumer:  # fmt: skip
        """A consumer comes at several shards. One of advisories does not wait for shards without an owner."""
        refuse_temporary(spec)
        policies = self._core.settings.policies
        whole, extends = prefetch_of(spec, policies), policies.of(first_of(spec)).use_prefetch_extension
        consumer = SpreadConsumer(
            spec, whole, len(shards), extends=extends, now=self._core.clock.monotonic,
            pull_ended=lambda consumer, left: self._door.pull_ended(consumer, left),
        )  # fmt: skip
        self._spread[consumer] = shards
        there = [shard for shard in shards if not _is_advisory(spec) or self._has_owner(shard)]
        gathering = _Gathering(len(there), partial(self._subscribed, consumer, token))
        try:
            for shard in sorted(there, key=lambda shard: shard != self.own):
                self._subscribe_at(consumer, shard, _Asked(gathering, shard))
        except QuireError:
            self._drop_spread(consumer)
            raise
        if not there:
            self.confirm_here(token)
        if len(there) < len(shards):
            self._rejoin_later()
        return consumer

    def _subscribe_at(self, consumer: SpreadConsumer, shard: int, token: Token) -> None:
        spec = consumer.spec
        is_browser = spec.kind is ConsumerKind.BROWSER
        prefetch = spec.prefetch if is_browser else consumer.share
        session = self._remote(shard) if _is_advisory(spec) and shard != self.own else self.at(shard)
        self._coming = shard, consumer
        try:
            its = session.subscribe(replace(spec, addresses=self._spread[consumer][shard], prefetch=prefetch), token)
        finally:
            self._coming = None
        self._know(shard, consumer, its)

    def _know(self, shard: int, consumer: SpreadConsumer, its: Consumer) -> None:
        if its not in self._whole:
            self._whole[its] = shard, consumer
            session = self.local if shard == self.own else self._remotes[shard]
            assert session is not None
            consumer.subscribed(shard, session, its)

    def _has_owner(self, shard: int) -> bool:
        return shard == self.own or self._map.peer(shard) is not None

    def _subscribed(self, consumer: SpreadConsumer, token: Token, answers: Answers) -> None:
        """All shards of a consumer have answered; if one refuses it, it leaves the others."""
        if consumer not in self._spread:
            return
        error = first_error(answers)
        lost = [shard for shard, answer in answers.items() if isinstance(answer, QuireError)]
        if error is not None and _is_advisory(consumer.spec) and not any([s in self._remotes for s in lost]):
            error = None  # those are lost, and come back
        if error is not None:
            self._drop_spread(consumer, lost)
        self.answer(token, error)

    def _drop_spread(self, consumer: SpreadConsumer, gone: Iterable[int] = (), seen: Seen = UNKNOWN) -> None:
        """A consumer is over at all shards; all but some are told so."""
        self._spread.pop(consumer, None)
        self._damaged.pop(consumer, None)
        for number, shard in list(consumer.shards.items()):
            self._whole.pop(shard.consumer, None)
            if number not in gone:
                shard.session.unsubscribe(shard.consumer, consumer.seen(number, seen))
            self._parts_gone(consumer.lost(number))

    def _parts_gone(self, parts: list[SpreadPart]) -> None:
        for part in parts:
            if self.parts.pop(part.number, None) is not None:
                self._door.part_gone(part)

    # Durable subscriptions: each is at the shard of its topic, and the cluster knows it by name.

    def _subscribe_durable(self, spec: SubscribeSpec, shard: int, token: Token) -> Consumer:
        """Another one of the same name, at another shard, goes then: as for JMS the subscription has changed."""
        found: list[Consumer] = []
        early: list[Answers] = []

        def answered(answers: Answers) -> None:
            if found:
                self._durable_there(found[0], shard, token, first_error(answers))
            else:  # what is there already answers before it is known here
                early.append(answers)

        consumer = self.at(shard).subscribe(spec, _Asked(_Gathering(1, answered), shard))
        found.append(consumer)
        self._consumers[consumer] = _Place(shard, spec.addresses)
        for answers in early:
            answered(answers)
        return consumer

    def _durable_there(self, consumer: Consumer, shard: int, token: Token, error: QuireError | None) -> None:
        if error is not None or self._has_left:
            self._consumers.pop(consumer, None)
            self.answer(token, error)
            return
        others = [number for number in self.every() if number != shard and self._has_owner(number)]
        call = ("remove-durable", (self.client_id, consumer.spec.name))
        gathering = _Gathering(len(others), partial(self._durable_moved, consumer, shard, token))
        for number in others:
            asked = _Asked(gathering, number)
            try:
                session = self.local if number == self.own else self._remote(number)
                assert session is not None
                if not session.call(*call, asked):
                    asked.answered(None)  # the old one stays, as at a shard without an owner
            except QuireError as refused:
                asked.answered(refused)
        if not others:
            self.answer(token, None)

    def _durable_moved(self, consumer: Consumer, shard: int, token: Token, answers: Answers) -> None:
        """It is nowhere else any more, or is in use there: then this one goes."""
        in_use = next((answer for answer in answers.values() if isinstance(answer, DestinationInUse)), None)
        if in_use is not None and self._consumers.pop(consumer, None) is not None:
            session = self.at(shard)
            self.unsubscribe(consumer)
            session.call("remove-durable", (self.client_id, consumer.spec.name))
        self.answer(token, in_use)

    # What is said of consumers.

    def unsubscribe(self, consumer: Consumer, seen: Seen = UNKNOWN, token: Token = None) -> bool:
        if isinstance(consumer, SpreadConsumer):
            return self._unsubscribe_spread(consumer, seen, token)
        session = self._session_of(consumer)
        if self._is_full([] if session is self.local else [self._shard(session)]):
            return False
        if not session.unsubscribe(consumer, seen, token):
            return False
        self._consumers.pop(consumer, None)
        return True

    def _unsubscribe_spread(self, consumer: SpreadConsumer, seen: Seen, token: Token) -> bool:
        if consumer not in self._spread:
            self.confirm_here(token)
            return True
        if seen.part is not None and seen.part.consumer is not consumer:
            seen = Seen(True)
        shards = consumer.shards
        told = {number: consumer.seen(number, seen) for number in shards}
        if not shards:
            self.confirm_here(token)
        elif not self.ask(
            list(shards), lambda n, session, asked: session.unsubscribe(shards[n].consumer, told[n], asked),
            partial(self._answer_first_error, token),
        ):  # fmt: skip
            return False
        self._drop_spread(consumer, list(shards))
        return True

    def _session_of(self, consumer: Consumer) -> Session:
        if isinstance(consumer, RemoteConsumer):
            return consumer.session
        assert self.local is not None
        return self.local

    def _shard(self, session: Session) -> int:
        return session.shard if isinstance(session, RemoteSession) else self.own

    def credit(self, consumer: Consumer, prefetch: int) -> None:
        if isinstance(consumer, SpreadConsumer):
            consumer.set_prefetch(prefetch)
        else:
            self._session_of(consumer).credit(consumer, prefetch)

    def pull(self, consumer: Consumer, count: int, wait_ms: int) -> None:
        if isinstance(consumer, SpreadConsumer):
            consumer.pull(count, wait_ms)
        else:
            self._session_of(consumer).pull(consumer, count, wait_ms)

    # Settling.

    def settle(self, what: What, how: Settlement, *, tx: Tx | None = None, token: Token = None) -> bool:
        if isinstance(what, Handles):
            session = self._session_of(what.consumer)
        elif isinstance(what.part, SpreadPart):
            return self._settle_spread(what.part.consumer, what, how, tx, token)
        else:
            session = what.part.session if isinstance(what.part, RemotePart) else self._session_of(what.part.consumer)
        if tx is not None:
            shard = self._shard(session)
            if self._is_full([shard]):
                return False
            self._transactions.work(tx, shard, acknowledges=True)
        return session.settle(what, how, tx=tx, token=token)

    def _settle_spread(
        self, consumer: SpreadConsumer, what: These | UpTo, how: Settlement, tx: Tx | None, token: Token
    ) -> bool:  # fmt: skip
        if tx is not None and self._is_full(consumer.shards):
            return False
        if what.part.number not in self.parts and _is_advisory(consumer.spec):  # it came from a shard that was lost
            self.confirm_here(token)
            return True
        covered = consumer.settled(what, how, tx)
        try:
            self._settle_covered(covered, how, tx, token)
        finally:
            consumer.adjust()
        return True

    def _settle_covered(
        self, covered: dict[SpreadPart, list[int]], how: Settlement, tx: Tx | None, token: Token
    ) -> None:  # fmt: skip
        gathering = _Gathering(len(covered), partial(self._answer_first_error, token))
        if not covered:
            self.confirm_here(token)
        for place, (part, sequences) in enumerate(covered.items()):
            session = part.shard.session
            if tx is not None:
                self._transactions.work(tx, self._shard(session), acknowledges=True)
            asked = None if token is None else token if len(covered) == 1 else _Asked(gathering, place)
            session.settle(These(part.inner, sequences), how, tx=tx, token=asked)

    # Transactions.

    def begin(self, tx: Tx, token: Token = None) -> bool:
        if self.is_awaited:
            return False
        self._transactions.begin(tx, token)
        return True

    def end(self, tx: Tx, step: Step, token: Token = None) -> bool:
        return not self.is_awaited and self._transactions.end(tx, step, token)

    def spoil(self, tx: Tx, error: QuireError) -> None:
        self._transactions.spoil(tx, error)

    def step(self, shard: int, tx: Tx, text: str, token: Token) -> bool:
        """Have the part of a transaction at a shard make a step of its ``SpanningCommit``."""
        if shard != self.own:
            return self._remotes[shard].step(tx, text, token)
        local = self.local
        assert local is not None
        then = partial(token.answered, None)
        return local.spanning(tx, lambda part: self._shared.step(text, local, part, then))

    def place(self, shard: int) -> Participant:
        return Participant(shard, self._map.epoch if shard == self.own else self._links.epoch(shard))

    def transaction_ended(self, tx: Tx, step: Step) -> None:
        for consumer in self._spread:
            consumer.transaction_ended(tx, step)

    # Temporary destinations, and services.

    def temporary(self, kind: DestinationKind, name: str = "", token: Token = None) -> Address:
        """Make a temporary destination: at the shard of its name, or one that is made up at the own one."""
        if not name and self.local is not None:
            return self.local.temporary(kind, name, token)
        name = name or secrets.token_hex(12)
        session = self.at(self._shard_of(Address(kind, name, Scope.REMOTE)))
        return session.temporary(kind, name, token)

    def call(self, name: str, arguments: tuple[Any, ...], token: Token = None) -> bool:
        if self.is_awaited:
            return False
        if name in ("create", "drop-temporary"):
            return self.at(self._shard_of(arguments[0])).call(name, arguments, token)
        if name == "producer":
            return self.at(self._shard_of(arguments[1])).call(name, arguments, token)
        if name == "remove-group":
            stream = Address(DestinationKind.STREAM, arguments[0])
            return self.at(self._shard_of(stream)).call(name, arguments, token)
        if name == "delete":
            shards = self._consumed(arguments[0])
            return self.ask(
                shards, lambda shard, session, asked: session.call(name, (shards[shard],), asked),
                partial(self._answer_first_error, token),
            )  # fmt: skip
        if name not in ("remove-durable", "recover"):
            raise InvalidArgument(f"there is no service {name[:40]!r}", argument="name")
        return self.ask(
            self.every(), lambda _, session, asked: session.call(name, arguments, asked),
            partial(self._recovered if name == "recover" else self._removed, token),
        )  # fmt: skip

    def _removed(self, token: Token, answers: Answers) -> None:
        self.answer(token, error_unless(answers, UnknownSubscription.code))  # other shards do not know it

    def _recovered(self, token: Token, answers: Answers) -> None:
        error = first_error(answers)
        found = [] if error else [tx for answer in answers.values() for tx in answer or ()]
        self.answer(token, error or list(dict.fromkeys(found)))

    # What its sessions tell, as ``Door``.

    @property
    def has_ended(self) -> bool | None:
        return self._door.has_ended

    def deliver(self, part: Part, messages: list[Message], first: bool) -> None:
        """Write messages; what is still on its way to a client that has left is not its own any more."""
        if self._has_left:
            return
        if self._whole and (known := self._whole.get(part.consumer)) is not None:
            shown = self.parts[part.number]
            assert isinstance(shown, SpreadPart)
            part, messages = shown, known[1].given(shown, messages)
            if not messages:
                return
        self._door.deliver(part, messages, first)

    def confirmed(self, tokens: list[Token]) -> None:
        own = [token for token in tokens if type(token) is not _Asked]
        if len(own) < len(tokens):
            for token in tokens:
                if type(token) is _Asked:
                    token.answered(None)
        if own:
            self._door.confirmed(own)

    def answered(self, token: Token, result: Any) -> None:
        if type(token) is _Asked:
            token.answered(result)
        else:
            self._door.answered(token, result)

    def failed(self, token: Token | None, error: QuireError) -> None:
        if type(token) is _Asked:
            token.answered(error)
        else:
            self._door.failed(token, error)

    def part_added(self, part: Part) -> None:
        if self._has_left:
            return
        known = self._whole.get(part.consumer)
        if known is None and self._coming is not None:
            self._know(*self._coming, part.consumer)
            known = self._coming
        if known is not None:
            part = known[1].part_added(known[0], part)
        self.parts[part.number] = part
        self._door.part_added(part)

    def part_gone(self, part: Part) -> None:
        shown = self.parts.pop(part.number, None)
        if isinstance(shown, SpreadPart):
            shown.consumer.part_gone(part)
        if shown is not None:
            self._door.part_gone(shown)

    def pull_ended(self, consumer: Consumer, left: int) -> None:
        if (known := self._whole.get(consumer)) is not None:
            known[1].pull_ended(consumer)
        else:
            self._door.pull_ended(consumer, left)

    def browse_ended(self, consumer: Consumer, damaged: int) -> None:
        """A browser has been given all; one of several shards, when all have ended."""
        known = self._whole.get(consumer)
        if known is None:
            self._door.browse_ended(consumer, damaged)
            return
        shard, whole = known
        self._damaged[whole] = self._damaged.get(whole, 0) + damaged
        if shard in whole.browsing:
            whole.browsing.discard(shard)
            if not whole.browsing:
                self._door.browse_ended(whole, self._damaged.pop(whole))

    def event(self, consumer: Consumer, name: str, headers: dict[str, str]) -> None:
        if not self._has_left:
            self._door.event(consumer, name, headers)

    def consumer_ended(self, consumer: Consumer, error: QuireError) -> None:
        """A shard has ended a consumer: the others are told. What has moved a client finds that connects again."""
        if isinstance(error, ShardMoved):
            self._break_off(error)
            return
        self._consumers.pop(consumer, None)
        known = self._whole.get(consumer)
        if known is not None:
            self._drop_spread(known[1], [known[0]])
        self._door.consumer_ended(consumer if known is None else known[1], error)

    def ended(self, error: QuireError) -> None:
        self._break_off(error)

    def go_on(self) -> None:
        """Input may go on: in a step, since many clients may wait for one shard."""
        if not self._waits and not self._has_left:
            self._waits = True
            self._core.steps.add(self._go_on, "input that waited for a shard", stores=False)

    def _go_on(self) -> bool:
        self._waits = False
        if not self._has_left:
            self._door.go_on()
        return False

    def flush(self) -> None:
        self._door.flush()

    def discard(self) -> None:
        """Write nothing of what has gathered, and end: the client has done nothing."""
        self._is_blameless = True
        self._door.discard()

    # Changes, and the end.

    def recheck(self) -> Iterator[None]:
        """Rules have changed, or places: end what the client may not have any more, a piece at a time."""
        if self.local is not None:
            yield from self.local.recheck()
        for consumer, place in list(self._consumers.items()):
            if self._consumed(place.addresses).keys() != {place.shard}:
                self._moved(consumer.spec)
                return
            yield
        for whole, shards in list(self._spread.items()):
            if self._consumed(whole.spec.addresses).keys() != shards.keys():
                self._moved(whole.spec)
                return
            yield
        self._rejoin()

    def _moved(self, spec: SubscribeSpec) -> None:
        text = f"{spec.addresses[0]} or another one of this subscription has moved to another shard"
        self._break_off(ShardMoved(text, destination=str(spec.addresses[0])))

    def _gone(self, remote: RemoteSession, error: QuireError, asked: list[Token]) -> None:
        shard = remote.shard
        if self._remotes.get(shard) is remote:
            del self._remotes[shard]
        if not self._has_left:
            if shard in self._used:
                self._break_off(error)
                return
            for consumer in list(self._spread):
                if shard in consumer.shards:
                    self._whole.pop(consumer.shards[shard].consumer, None)
                    self._parts_gone(consumer.lost(shard))
            self._rejoin_later()
        for token in asked:  # of one that the client was leaving, too: it has not done all that was said before
            if type(token) is _Asked:
                token.answered(error)

    def _break_off(self, error: QuireError) -> None:
        """The session is over at all shards; if the client has done nothing, nothing counts as failed there."""
        if not self._has_left:
            self._is_blameless = self._is_blameless or error.code in OF_THE_BROKER
            self._door.ended(error)
            self.leave(Leaving(LeavingKind.LOST, str(error)))

    def leave(self, how: Leaving, token: Token = None) -> bool:
        """The client goes; its token comes when all shards have done what it has said before."""
        if self._has_left:
            if token is not None and self.local is not None:
                self.local.leave(how, token)
            return True
        self._has_left = True
        if how.kind is LeavingKind.LOST and self._is_blameless:
            how = how._replace(kind=LeavingKind.BLAMELESS)
        if self._rejoining is not None:
            self._rejoining.cancel()
        sessions = self._all()
        gathering = _Gathering(len(sessions), partial(self._left, token))
        for number, session in enumerate(sessions):
            session.leave(how, None if token is None else _Asked(gathering, number))
        if token is not None and not sessions:
            self._core.steps.add(partial(self._say_left, token), "a goodbye", stores=False)
        self._spread.clear()
        self._whole.clear()
        return True

    def _left(self, token: Token, answers: Answers) -> None:
        """All shards have done what the client has said, or one was lost before."""
        error = first_error(answers)
        if error is None:
            self._door.confirmed([token])
        else:
            self._door.ended(error)

    def _say_left(self, token: Token) -> bool:
        self._door.confirmed([token])
        return False

    # Advisories of shards that were lost.

    def _rejoin_later(self) -> None:
        if self._rejoining is None and not self._has_left:
            self._rejoining = self._core.scheduler.call_later(REJOIN, self._rejoin_now)

    def _rejoin_now(self) -> None:
        self._rejoining = None
        self._rejoin()

    def _rejoin(self) -> None:
        if self._has_left:
            return
        for consumer, shards in list(self._spread.items()):
            for shard in [each for each in shards if each not in consumer.shards]:
                if not _is_advisory(consumer.spec):
                    continue
                if not self._has_owner(shard):
                    self._rejoin_later()
                    continue
                try:
                    self._subscribe_at(consumer, shard, _Asked(_Gathering(1, lambda _: None), shard))
                except LimitExceeded:
                    self._rejoin_later()


class _State: ...


_NOT_ASKED, _ASKED = _State(), _State()


def _is_advisory(spec: SubscribeSpec) -> bool:
    return all([a.kind is DestinationKind.TOPIC and a.name.startswith(ADVISORIES) for a in spec.addresses])


def makes_cluster_session(
    broker: Broker, gate: Gate, links: Links, shared: ShardTransactions, local: MakesLocalSession = LocalSession
) -> Callable[[Guard, Door], Session]:  # fmt: skip
    return lambda guard, door: ClusterSession(broker, gate, links, shared, guard.access, door, local)
