"""The users, rules and tokens as they are now, and what holds of a proof that was given before."""

import heapq
from collections.abc import Callable

import msgspec

from quire.clock import Clock
from quire.destination import Destination, DestinationKind
from quire.scheduler import Scheduler, Timer
from quire.security.decision import Decision
from quire.security.principal import Principal, Proof, with_included
from quire.security.rule_book import RuleBook
from quire.security.saved_state import SavedState
from quire.security.tokens import LOCAL, Token, make_token, same_token
from quire.settings import Action, Rule, Settings, User

LOCAL_USER = "$local"
"""The name of the command line on the broker's machine; no user can have it."""

ALWAYS = 1 << 62


class Accounts:
    """What decides, in memory.

    Args:
        is_dead_letter: whether a destination is where dead letters go.

    Attributes:
        settings: those that hold.
        state: what was made while the broker runs.
        users: all users, by name.
        rules: all rules, those of the settings file first; without the built-in ones.
        is_enabled: whether clients must log in. Once that is so, it stays so until the process ends.
        generation: changes whenever users, rules or tokens change, or a proof ends.
        local_token: what the command line on this machine logs in with.
    """

    def __init__(
        self, settings: Settings, clock: Clock, scheduler: Scheduler, is_dead_letter: Callable[[Destination], bool]
    ) -> None:
        self.settings = settings
        self.state = SavedState()
        self.is_enabled = False
        self.generation = 0
        self._local, self.local_token = make_token(LOCAL_USER, clock.now_ms(), ALWAYS, id=LOCAL)
        self._clock = clock
        self._scheduler = scheduler
        self._is_dead_letter = is_dead_letter
        self._watchers: list[Callable[[], None]] = []
        self._ends: list[int] = []  # a heap: when proofs of clients end, in whole seconds since the epoch, each once
        self._known_ends: set[int] = set()
        self._timer: Timer | None = None
        self.take(settings, self.state)

    def take(self, settings: Settings, state: SavedState) -> None:
        """Join what the settings and the file of run time say; of two users of one name that of the settings counts."""
        self.settings, self.state = settings, state
        self.users: dict[str, User] = {**state.users, **{user.name: user for user in settings.users}}
        self.rules: tuple[Rule, ...] = (*settings.rules, *state.rules.values())
        self._certificates = {subject: user.name for user in self.users.values() for subject in user.certificates}
        self._book = RuleBook(self.rules, self._is_dead_letter)
        self.is_enabled = bool(self.is_enabled or self.users or settings.security.enabled or settings.jwt.issuer)
        self._changed()

    def use_local_token(self, text: str) -> None:
        """Have the command line on this machine log in with the token of another process: that of the broker."""
        self._local, self.local_token = same_token(self._local, text), text

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call when anything changes."""
        self._watchers.append(watcher)

    def decide(self, principal: Principal, action: Action, kind: DestinationKind, name: str) -> Decision:
        """What the rules say, with the reason."""
        return self._book.decide(principal, action, kind, name)

    def standing(self, principal: Principal) -> Principal | None:
        """Who someone is now who proved it before; None if the proof has ended."""
        if principal.proof is Proof.NONE:
            return None if self.is_enabled else principal
        if principal.expires_at is not None and principal.expires_at <= self._clock.now_ms():
            return None
        user = self.users.get(principal.name)
        if principal.proof is Proof.PEER:
            return None if user is not None and user.disabled else principal
        if principal.proof is Proof.TOKEN or principal.proof is Proof.LOCAL:
            token = self.token(principal.key)
            return None if token is None else self.standing_of_token(token)
        if principal.proof is Proof.JWT:
            trusted = self.settings.jwt.issuer == principal.key and (user is None or not user.disabled)
            return principal if trusted else None
        if user is None or user.disabled:
            return None
        valid = (
            principal.key == user.password_hash
            if principal.proof is Proof.PASSWORD
            else principal.key in user.certificates
        )
        return Principal(user.name, user.roles, principal.proof, None, principal.key) if valid else None

    def remembered(self, principal: Principal) -> str:
        """Who someone is, for what is done later: the name; the roles too of one that is no user here (a JWT's)."""
        if principal.proof is Proof.NONE:
            return ""
        roles = None if principal.name in self.users else sorted(principal.roles)
        return msgspec.json.encode((principal.name, roles)).decode()

    def recalled(self, text: str) -> Principal | None:
        """Who someone is now that was remembered; None if the user is gone or disabled."""
        name, roles = msgspec.json.decode(text, type=tuple[str, list[str] | None])
        user = self.users.get(name)
        if user is not None:
            return None if user.disabled else Principal(name, user.roles, Proof.PEER)
        if roles is None or not (name == LOCAL_USER or self.settings.jwt.issuer):
            return None
        return Principal(name, frozenset(roles), Proof.PEER)

    def standing_of_token(self, token: Token) -> Principal | None:
        """Whom a token makes one; None if it has ended, or its owner is gone."""
        if token.id == LOCAL:
            return Principal(LOCAL_USER, frozenset({"administrator"}), Proof.LOCAL, None, LOCAL)
        owner = self.users.get(token.owner)
        if owner is None or owner.disabled or token.expires_at <= self._clock.now_ms():
            return None
        roles = owner.roles if token.roles is None else with_included(owner.roles) & frozenset(token.roles)
        return Principal(owner.name, roles, Proof.TOKEN, token.expires_at, token.id)

    def token(self, id: str) -> Token | None:
        """A token by its id."""
        return self._local if id == LOCAL else self.state.tokens.get(id)

    def user_of_certificate(self, subject: str) -> User | None:
        """The user who has a certificate."""
        user = self.users.get(self._certificates.get(subject, ""))
        return None if user is None or user.disabled else user

    def expires(self, at: int | None) -> None:
        """A client is connected whose proof ends at a time, in milliseconds since the epoch: then it must be closed."""
        if at is None or (second := -(-at // 1000)) in self._known_ends:
            return
        self._known_ends.add(second)
        heapq.heappush(self._ends, second)
        if self._ends[0] == second:
            self._await_end()

    def _changed(self) -> None:
        """Nothing that is remembered of the rules holds any more."""
        self.generation += 1
        for watcher in self._watchers:
            watcher()

    def _await_end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._ends:
            delay = max(self._ends[0] * 1000 - self._clock.now_ms(), 0) / 1000
            self._timer = self._scheduler.call_later(delay, self._end)

    def _end(self) -> None:
        now = self._clock.now_ms()
        while self._ends and self._ends[0] * 1000 <= now:
            self._known_ends.discard(heapq.heappop(self._ends))
        self._await_end()
        self._changed()
