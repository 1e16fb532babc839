"""The users, rules and tokens as they are now, the file that keeps those made while the broker runs, and their changes.

A change is written to the file first, and then it holds. A rule decides what (``RuleBook``), and says why
(``Decision``). A bearer token reads ``qt_ID_SECRET``; the broker keeps a digest of the secret only.
"""

import contextlib
import errno
import hashlib
import heapq
import hmac
import os
import re
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from quire.clock import Clock
from quire.destination import ADVISORIES, Destination, DestinationKind, checked
from quire.destination_pattern import Pattern
from quire.errors import (
    BrokerBusy,
    IllegalState,
    InvalidArgument,
    InvalidDestination,
    InvalidSettings,
    LimitExceeded,
    QuireError,
    StoreFull,
    StoreUnreachable,
    UnknownRule,
    UnknownToken,
    UnknownUser,
    UserExists,
)
from quire.scheduler import Scheduler, Timer
from quire.security.principal import ANYONE, Background, Permission, Principal, Proof, with_included
from quire.settings import Action, Rule, Settings, User, security_file
from quire.settings.users import read_rule, read_user, read_users


@dataclass(frozen=True, slots=True)
class Decision:
    """What rules say of one action of a user."""

    allowed: bool
    action: Action
    kind: DestinationKind
    name: str
    rule: Rule | None = None  # the one that decides
    losers: tuple[Rule, ...] = ()  # those that match too and say something else
    reason: str = ""  # what decides if no rule does
    hint: str = ""  # what may have been meant instead

    def __str__(self) -> str:
        verdict = "allowed" if self.allowed else "refused"
        text = f"{self.action} {self.kind}://{self.name} is {verdict}: {self.rule or self.reason}"
        if self.losers:
            text += "; overruled: " + "; ".join(map(str, self.losers))
        return f"{text}; {self.hint}" if self.hint else text


INTERNAL = "$quire."  # how the names of the broker's own destinations begin

_EVERYTHING = Pattern(">")

BUILT_IN = (
    Rule("role-administrator", "role:administrator", True, frozenset(Action), None, _EVERYTHING, everything=True),
    Rule("role-operator", "role:operator", True, frozenset({Action.MANAGE}), None, _EVERYTHING, everything=True),
)
"""What roles mean for destinations. A monitor needs no rule: states are no action on a destination."""

_KINDS = {"Queue": DestinationKind.QUEUE, "Topic": DestinationKind.TOPIC, "Stream": DestinationKind.STREAM}
_FOR_ALL = {ADVISORIES + "TempQueue", ADVISORIES + "TempTopic"}
"""Java clients always subscribe to these: they must know which temporary destinations are gone."""


class RuleBook:
    """The rules of the settings file, those made while the broker runs, and those that give roles their meaning."""

    def __init__(self, rules: Iterable[Rule], is_dead_letter: Callable[[Destination], bool]) -> None:
        self._is_dead_letter = is_dead_letter
        self._by_subject: dict[str, list[Rule]] = {}
        for rule in (*BUILT_IN, *rules):
            self._by_subject.setdefault(rule.subject, []).append(rule)

    def decide(self, principal: Principal, action: Action, kind: DestinationKind, name: str) -> Decision:
        """What the rules say: a deny wins over every allow, and without a rule that matches it is refused."""
        if principal is ANYONE:
            return Decision(True, action, kind, name, reason="there are no users")
        matching = [rule for rule in self._of(principal) if self._matches(rule, principal, action, kind, name)]
        denials = [rule for rule in matching if not rule.allow]
        grants = [rule for rule in matching if rule.allow]
        if denials:
            return Decision(False, action, kind, name, denials[0], tuple(grants))
        if grants:
            return Decision(True, action, kind, name, grants[0])
        if reason := self._advisory(principal, action, kind, name):
            return Decision(True, action, kind, name, reason=reason)
        hint = self._hint(principal, action, kind, name)
        return Decision(False, action, kind, name, reason="no rule allows it", hint=hint)

    def is_protected(self, kind: DestinationKind, name: str) -> bool:
        """Whether a rule must name it: a pattern that begins with a wildcard does not allow it."""
        if name.startswith((INTERNAL, ADVISORIES)):
            return True
        try:
            return self._is_dead_letter(checked(kind, name))
        except InvalidDestination:
            return False

    def _of(self, principal: Principal) -> Iterator[Rule]:
        for subject in (f"user:{principal.name}", *[f"role:{role}" for role in sorted(principal.roles)], "*"):
            yield from self._by_subject.get(subject, ())

    def _matches(self, rule: Rule, principal: Principal, action: Action, kind: DestinationKind, name: str) -> bool:
        if action not in rule.actions or rule.kind not in (None, kind) or not rule.pattern.matches(name):
            return False
        if not rule.allow or rule.everything or rule.pattern.text[0] not in "*>" or principal.is_administrator:
            return True
        return not self.is_protected(kind, name)

    def _advisory(self, principal: Principal, action: Action, kind: DestinationKind, name: str) -> str:
        """Why one may read an advisory topic that no rule is about, and have it made; empty if one may not."""
        if kind is not DestinationKind.TOPIC or not name.startswith(ADVISORIES):
            return ""
        if action not in (Action.READ, Action.CREATE):
            return ""
        if name in _FOR_ALL:
            return "every client may know of temporary destinations"
        _, _, about = name.removeprefix(ADVISORIES).partition(".")
        word, _, destination = about.partition(".")
        if word in _KINDS and destination:
            for right in (Action.READ, Action.MANAGE):
                if self.decide(principal, right, _KINDS[word], destination).allowed:
                    return f"who may {right} {_KINDS[word]}://{destination} may read its advisories"
            return ""
        return "who may monitor may read advisories" if principal.may(Permission.MONITOR) else ""

    def _hint(self, principal: Principal, action: Action, kind: DestinationKind, name: str) -> str:
        for other in DestinationKind:
            for rule in self._of(principal) if other is not kind else ():
                if rule.allow and self._matches(rule, principal, action, other, name):
                    return f"it would match as {other}: {rule}"
        for rule in self._of(principal):
            if rule.allow and action in rule.actions and rule.kind in (None, kind) and rule.pattern.matches(name):
                return f"a rule must name it, and this one begins with a wildcard: {rule}"
        return ""


_TOKEN = re.compile(r"qt_([0-9a-z]{1,20})_([A-Za-z0-9_-]{43})")

LOCAL = "local"  # the id of the token that the command line on the broker's machine reads from a file


OF_THE_CONSOLE = "console"
"""The text of the tokens that the console makes for its sessions. They end with the password of their owner."""


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token that a user has made."""

    id: str
    owner: str  # the user whose rights it gives
    digest: str  # SHA-256 of the secret, in hexadecimal
    expires_at: int  # in milliseconds since the epoch, as all times here
    roles: tuple[str, ...] | None = None  # the only roles of the owner that it gives; None for all
    created_at: int = 0
    text: str = ""  # what it is for

    def __repr__(self) -> str:
        return f"Token({self.id!r}, {self.owner!r})"

    def is_secret(self, secret: str) -> bool:
        return hmac.compare_digest(self.digest, _digest(secret))

    def has_ended(self, now_ms: int, password_hash: str) -> bool:
        """Whether its time is over, or one of the console was made with another password than its owner has."""
        is_of_console = self.text == OF_THE_CONSOLE
        return self.expires_at <= now_ms or (is_of_console and not self.id.startswith(_mark(password_hash)))


def token_id(text: str, password_hash: str) -> str:
    """An id for a new token; that of one of the console begins with a mark of its owner's password."""
    return _mark(password_hash) * (text == OF_THE_CONSOLE) + secrets.token_hex(6)


def make_token(
    owner: str, now_ms: int, expires_at: int, roles: tuple[str, ...] | None = None, text: str = "", id: str = ""
) -> tuple[Token, str]:
    id, secret = id or secrets.token_hex(6), secrets.token_urlsafe(32)
    return Token(id, owner, _digest(secret), expires_at, roles, now_ms, text), f"qt_{id}_{secret}"


def same_token(token: Token, text: str) -> Token:
    """A token with what users get for another one: several processes then take the same."""
    found = split_token(text)
    assert found is not None
    return msgspec.structs.replace(token, digest=_digest(found[1]))


def split_token(text: str) -> tuple[str, str] | None:
    found = _TOKEN.fullmatch(text)
    return (found[1], found[2]) if found else None


def read_token(table: Mapping[str, Any], origin: str) -> Token:
    try:
        return msgspec.convert(table, Token)
    except msgspec.ValidationError as error:
        raise InvalidSettings(f"a token ({origin}) is damaged: {error}", origin=origin) from error


def _mark(password_hash: str) -> str:
    return _digest(password_hash)[:8]


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


MOST = 10_000  # how many users, rules and tokens there may be of each
MAX_SIZE = 64 * 2**20  # the largest file that is read, in bytes


@dataclass(frozen=True, slots=True)
class SavedState:
    users: dict[str, User] = field(default_factory=dict)
    rules: dict[str, Rule] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    next_rule: int = 1

    def encoded(self) -> bytes:
        users = [
            {
                "name": user.name,
                "password_hash": user.password_hash,
                "roles": sorted(user.roles),
                "certificates": list(user.certificates),
                "disabled": user.disabled,
            }
            for user in self.users.values()
        ]
        rules = [{"id": rule.id, **rule_table(rule)} for rule in self.rules.values()]
        tokens = list(self.tokens.values())
        content = {"version": 1, "next_rule": self.next_rule, "users": users, "rules": rules, "tokens": tokens}
        return msgspec.json.format(msgspec.json.encode(content), indent=1)


def rule_table(rule: Rule) -> dict[str, Any]:
    effect = "allow" if rule.allow else "deny"
    return {"subject": rule.subject, effect: rule.listed.split(","), "destination": rule.destination}


def load_state(file: Path) -> SavedState:
    """Without a file there is nothing."""
    try:
        with file.open("rb") as source:
            content = source.read(MAX_SIZE)
    except FileNotFoundError:
        return SavedState()
    except OSError as error:
        raise InvalidSettings(f"{file} cannot be read: {error.strerror}", file=str(file)) from error
    try:
        return _decoded(msgspec.json.decode(content), f"file {file}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # its text might show what is secret
        raise InvalidSettings(f"{file} is damaged: take a backup of it", file=str(file)) from error


def _decoded(content: dict[str, Any], origin: str) -> SavedState:
    if content["version"] != 1:
        raise InvalidSettings(f"a newer version of Quire wrote {origin}: start that version", origin=origin)
    rules = {}
    for table in content["rules"]:
        id = str(table.pop("id"))
        rules[id] = read_rule(table, id, f"{origin}, rule {id}", in_file=False)
    return SavedState(
        {user.name: user for user in read_users(content["users"], origin, in_file=False)},
        rules,
        {table["id"]: read_token(table, origin) for table in content["tokens"]},
        int(content["next_rule"]),
    )


def save_state(file: Path, state: SavedState) -> None:
    """Write the file: others see it whole or not at all, and only its owner may read it."""
    write_secret(file, state.encoded())


def write_secret(file: Path, content: bytes) -> None:
    """Write a file that only its owner may read, at once and durable."""
    fresh = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as target:
            target.write(content)
            target.flush()
            os.fsync(target.fileno())
        fresh.replace(file)
        directory = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise _refused(file, error) from error


def _refused(file: Path, error: OSError) -> QuireError:
    kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreUnreachable
    return kind(f"{file} cannot be written: {error.strerror}", path=str(file))


LOCAL_USER = "$local"  # the name of the command line on the broker's machine; no user can have it

ALWAYS = 1 << 62


class Accounts:
    """What decides, in memory. ``rules`` are all but the built-in ones, those of the settings file first."""

    def __init__(
        self, settings: Settings, clock: Clock, scheduler: Scheduler, is_dead_letter: Callable[[Destination], bool]
    ) -> None:
        self.settings = settings
        self.state = SavedState()  # what was made while the broker runs
        self.is_enabled = False  # whether clients must log in: once so, it stays so until the process ends
        self.generation = 0  # changes whenever users, rules or tokens change, or a proof ends
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
        self._watchers.append(watcher)

    def decide(self, principal: Principal, action: Action, kind: DestinationKind, name: str) -> Decision:
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
        if owner is None or owner.disabled or self.has_ended(token):
            return None
        roles = owner.roles if token.roles is None else with_included(owner.roles) & frozenset(token.roles)
        return Principal(owner.name, roles, Proof.TOKEN, token.expires_at, token.id)

    def token(self, id: str) -> Token | None:
        return self._local if id == LOCAL else self.state.tokens.get(id)

    def has_ended(self, token: Token) -> bool:
        """Whether a token is valid no more, whatever becomes of its owner."""
        owner = self.users.get(token.owner)
        return token.has_ended(self._clock.now_ms(), owner.password_hash if owner else "")

    def user_of_certificate(self, subject: str) -> User | None:
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


MOST_WAITING = 1000  # how many changes may wait until those before them are in the file
LONGEST_LIFE = 10 * 365 * 86_400  # the longest life of a token, in seconds
LONGEST_TEXT = 200  # the longest text about a token, in characters

T = TypeVar("T")
P = ParamSpec("P")

Changed = Callable[[T | QuireError], None]
"""What is called with the answer when the change is durable, or with why there is none."""


class AccountChanges:
    """Makes one change after the other. Each is called back when it is in the file and holds."""

    def __init__(self, accounts: Accounts, clock: Clock, files: Background) -> None:
        self._accounts = accounts
        self._clock = clock
        self._files = files
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_writing = False
        self._file = security_file(accounts.settings)

    # Users.

    def add_user(self, state: SavedState, user: User) -> tuple[SavedState, User]:
        if user.name in self._accounts.users:
            raise UserExists(f"there already is a user {user.name!r}", user=user.name)
        _check_room("users", state.users)
        return replace(state, users={**state.users, user.name: user}), user

    def change_user(self, state: SavedState, name: str, fields: Mapping[str, Any]) -> tuple[SavedState, User]:
        user = replace(self._changeable(state, name), **fields)
        return replace(state, users={**state.users, name: user}), user

    def set_password(self, state: SavedState, name: str, password_hash: str) -> tuple[SavedState, tuple[User, int]]:
        """It ends what the console got with the old one; tokens that were made stay: how many is told."""
        user = replace(self._changeable(state, name), password_hash=password_hash)
        now, own = self._clock.now_ms(), [token for token in state.tokens.values() if token.owner == name]
        left = [token for token in own if not token.has_ended(now, password_hash)]
        return replace(state, users={**state.users, name: user}), (user, len(left))

    def remove_user(self, state: SavedState, name: str) -> tuple[SavedState, User]:
        """Remove a user, with its tokens. Rules stay: they may be for a user who comes again."""
        user = self._changeable(state, name)
        users = {key: each for key, each in state.users.items() if key != name}
        tokens = {id: token for id, token in state.tokens.items() if token.owner != name}
        return replace(state, users=users, tokens=tokens), user

    def _changeable(self, state: SavedState, name: str) -> User:
        user = self._accounts.users.get(name)
        if user is None:
            raise UnknownUser(f"there is no user {name[:100]!r}", user=name[:100])
        if user.in_file:
            text = f"the user {name!r} is in the settings file: change it there, and send the broker SIGHUP"
            raise IllegalState(text, user=name)
        return state.users[name]

    # Rules.

    def add_rule(self, state: SavedState, table: Mapping[str, Any]) -> tuple[SavedState, Rule]:
        _check_room("rules", state.rules)
        rule = _rule(table, f"r{state.next_rule}")
        rules = {**state.rules, rule.id: rule}
        return replace(state, rules=rules, next_rule=state.next_rule + 1), rule

    def set_rule(self, state: SavedState, id: str, table: Mapping[str, Any]) -> tuple[SavedState, Rule]:
        self._check_rule(state, id)
        rule = _rule(table, id)
        return replace(state, rules={**state.rules, id: rule}), rule

    def remove_rule(self, state: SavedState, id: str) -> tuple[SavedState, Rule]:
        self._check_rule(state, id)
        rules = {key: rule for key, rule in state.rules.items() if key != id}
        return replace(state, rules=rules), state.rules[id]

    def _check_rule(self, state: SavedState, id: str) -> None:
        if id in state.rules:
            return
        if any([rule.id == id for rule in self._accounts.rules]):
            text = f"the rule {id!r} is in the settings file: change it there, and send the broker SIGHUP"
            raise IllegalState(text, rule=id)
        raise UnknownRule(f"there is no rule {id[:60]!r}", rule=id[:60])

    # Tokens.

    def add_token(
        self, state: SavedState, owner: str, life: float, roles: Iterable[str] | None, text: str
    ) -> tuple[SavedState, tuple[Token, str]]:
        """The answer has what its user shows, which is nowhere else."""
        if owner not in self._accounts.users:
            raise UnknownUser(f"there is no user {owner[:100]!r}", user=owner[:100])
        if not 0 < life <= LONGEST_LIFE or len(text) > LONGEST_TEXT:
            limits = f"a token lives up to {LONGEST_LIFE} s, and has a text of up to {LONGEST_TEXT} characters"
            raise InvalidArgument(limits, argument="expires_in")
        now = self._clock.now_ms()
        tokens = {id: token for id, token in state.tokens.items() if not self._accounts.has_ended(token)}
        _check_room("tokens", tokens)
        chosen = None if roles is None else tuple(sorted(roles))
        user = self._accounts.users[owner]
        had = with_included(user.roles)
        if other := set(chosen or ()) - had:
            problem = f"{owner!r} has no role {min(other)[:60]!r}: a token of it may have {', '.join(sorted(had))}"
            raise InvalidArgument(problem, argument="roles")
        token, secret = make_token(
            owner, now, now + round(life * 1000), chosen, text, token_id(text, user.password_hash)
        )
        return replace(state, tokens={**tokens, token.id: token}), (token, secret)

    def revoke_token(self, state: SavedState, id: str) -> tuple[SavedState, Token]:
        if id not in state.tokens:
            raise UnknownToken(f"there is no token {id[:60]!r}", token=id[:60])
        tokens = {key: token for key, token in state.tokens.items() if key != id}
        return replace(state, tokens=tokens), state.tokens[id]

    def make(
        self, done: Changed[T], edit: Callable[Concatenate[SavedState, P], tuple[SavedState, T]], *arguments: P.args,
        **named: P.kwargs,
    ) -> None:  # fmt: skip
        """Make a change with one of the methods above, which makes a state of another one, and an answer."""
        if len(self._waiting) >= MOST_WAITING:
            done(BrokerBusy("too many changes of users, rules and tokens wait: try again later"))
            return
        self._waiting.append(lambda: self._begin(lambda state: edit(state, *arguments, **named), done))
        self._next()

    def _next(self) -> None:
        if self._waiting and not self._is_writing:
            self._waiting.popleft()()

    def _begin(self, edit: Callable[[SavedState], tuple[SavedState, T]], done: Changed[T]) -> None:
        try:
            state, answer = edit(self._accounts.state)
        except QuireError as error:
            done(error)
            self._next()
            return

        def written(result: Exception | None) -> None:
            self._is_writing = False
            if result is None:
                self._accounts.take(self._accounts.settings, state)
                done(answer)
            else:
                done(result if isinstance(result, QuireError) else QuireError(f"{self._file}: {result!r}"))
            self._next()

        self._is_writing = True
        file = self._file
        if file is None:
            written(None)
        elif not self._files.run(lambda: save_state(file, state), written):
            written(BrokerBusy("too much waits to be written: try again later"))


def user_of(table: Mapping[str, Any]) -> User:
    try:
        return read_user(table, "request", in_file=False)
    except InvalidSettings as error:
        raise InvalidArgument(str(error), argument="user") from error


def _rule(table: Mapping[str, Any], id: str) -> Rule:
    try:
        return read_rule(table, id, "request", in_file=False)
    except InvalidSettings as error:
        raise InvalidArgument(str(error), argument="rule") from error


def _check_room(what: str, there: Mapping[str, object]) -> None:
    if len(there) >= MOST:
        raise LimitExceeded(f"the limit of {MOST} {what} is reached", limit=MOST)
