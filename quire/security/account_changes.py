"""Changes of users, rules and tokens while the broker runs: written to the file first, then they hold."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from quire.clock import Clock
from quire.errors import (
    BrokerBusy,
    IllegalState,
    InvalidArgument,
    InvalidSettings,
    LimitExceeded,
    QuireError,
    UnknownRule,
    UnknownToken,
    UnknownUser,
    UserExists,
)
from quire.security.accounts import Accounts
from quire.security.background import Background
from quire.security.principal import with_included
from quire.security.saved_state import MOST, SavedState, save_state
from quire.security.tokens import Token, make_token
from quire.settings import Rule, User, security_file
from quire.settings.rules import read_rule
from quire.settings.users import read_user

MOST_WAITING = 1000
"""How many changes may wait until those before them are in the file."""

LONGEST_LIFE = 10 * 365 * 86_400
"""The longest life of a token, in seconds."""

OF_THE_CONSOLE = "console"
"""The text of the tokens that the console makes for its sessions: they end with the password they were made with."""

LONGEST_TEXT = 200
"""The longest text about a token, in characters."""

T = TypeVar("T")

Edit = Callable[[SavedState], tuple[SavedState, T]]
"""Makes a state of another one, and an answer; it may raise an error of the user's."""

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

    def add_user(self, done: Changed[User], user: User) -> None:
        """Make a user."""

        def edit(state: SavedState) -> tuple[SavedState, User]:
            if user.name in self._accounts.users:
                raise UserExists(f"there already is a user {user.name!r}", user=user.name)
            _check_room("users", state.users)
            return replace(state, users={**state.users, user.name: user}), user

        self._change(edit, done)

    def change_user(self, done: Changed[User], name: str, fields: Mapping[str, Any]) -> None:
        """Change some fields of a user."""

        def edit(state: SavedState) -> tuple[SavedState, User]:
            user = replace(self._changeable(state, name), **fields)
            return replace(state, users={**state.users, name: user}), user

        self._change(edit, done)

    def set_password(self, done: Changed[tuple[User, int]], name: str, password_hash: str) -> None:
        """Give a user another password. It ends what the console got with the old one; tokens that were made stay.

        Args:
            done: called with the user, and with how many tokens of it are valid still.
        """

        def edit(state: SavedState) -> tuple[SavedState, tuple[User, int]]:
            user = replace(self._changeable(state, name), password_hash=password_hash)
            tokens = {
                id: token for id, token in state.tokens.items() if (token.owner, token.text) != (name, OF_THE_CONSOLE)
            }
            now = self._clock.now_ms()
            left = [token for token in tokens.values() if token.owner == name and token.expires_at > now]
            return replace(state, users={**state.users, name: user}, tokens=tokens), (user, len(left))

        self._change(edit, done)

    def remove_user(self, done: Changed[User], name: str) -> None:
        """Remove a user, with its tokens. Rules stay: they may be for a user who comes again."""

        def edit(state: SavedState) -> tuple[SavedState, User]:
            user = self._changeable(state, name)
            users = {key: each for key, each in state.users.items() if key != name}
            tokens = {id: token for id, token in state.tokens.items() if token.owner != name}
            return replace(state, users=users, tokens=tokens), user

        self._change(edit, done)

    def _changeable(self, state: SavedState, name: str) -> User:
        user = self._accounts.users.get(name)
        if user is None:
            raise UnknownUser(f"there is no user {name[:100]!r}", user=name[:100])
        if user.in_file:
            text = f"the user {name!r} is in the settings file: change it there, and send the broker SIGHUP"
            raise IllegalState(text, user=name)
        return state.users[name]

    # Rules.

    def add_rule(self, done: Changed[Rule], table: Mapping[str, Any]) -> None:
        """Make a rule, written as an entry of ``[[rules]]``."""

        def edit(state: SavedState) -> tuple[SavedState, Rule]:
            _check_room("rules", state.rules)
            rule = _rule(table, f"r{state.next_rule}")
            rules = {**state.rules, rule.id: rule}
            return replace(state, rules=rules, next_rule=state.next_rule + 1), rule

        self._change(edit, done)

    def set_rule(self, done: Changed[Rule], id: str, table: Mapping[str, Any]) -> None:
        """Put another rule in the place of one."""

        def edit(state: SavedState) -> tuple[SavedState, Rule]:
            self._check_rule(state, id)
            rule = _rule(table, id)
            return replace(state, rules={**state.rules, id: rule}), rule

        self._change(edit, done)

    def remove_rule(self, done: Changed[Rule], id: str) -> None:
        """Remove a rule."""

        def edit(state: SavedState) -> tuple[SavedState, Rule]:
            self._check_rule(state, id)
            rules = {key: rule for key, rule in state.rules.items() if key != id}
            return replace(state, rules=rules), state.rules[id]

        self._change(edit, done)

    def _check_rule(self, state: SavedState, id: str) -> None:
        if id in state.rules:
            return
        if any([rule.id == id for rule in self._accounts.rules]):
            text = f"the rule {id!r} is in the settings file: change it there, and send the broker SIGHUP"
            raise IllegalState(text, rule=id)
        raise UnknownRule(f"there is no rule {id[:60]!r}", rule=id[:60])

    # Tokens.

    def add_token(
        self, done: Changed[tuple[Token, str]], owner: str, life: float, roles: Iterable[str] | None, text: str
    ) -> None:
        """Make a token; the answer has what its user shows, which is nowhere else.

        Args:
            done: called with the token, and with what its user shows.
            owner: the user whose rights it gives.
            life: in seconds.
            roles: the only roles of the owner that it gives; None for all.
            text: what it is for.
        """

        def edit(state: SavedState) -> tuple[SavedState, tuple[Token, str]]:
            if owner not in self._accounts.users:
                raise UnknownUser(f"there is no user {owner[:100]!r}", user=owner[:100])
            if not 0 < life <= LONGEST_LIFE or len(text) > LONGEST_TEXT:
                limits = f"a token lives up to {LONGEST_LIFE} s, and has a text of up to {LONGEST_TEXT} characters"
                raise InvalidArgument(limits, argument="expires_in")
            now = self._clock.now_ms()
            tokens = {id: token for id, token in state.tokens.items() if token.expires_at > now}
            _check_room("tokens", tokens)
            chosen = None if roles is None else tuple(sorted(roles))
            had = with_included(self._accounts.users[owner].roles)
            if other := set(chosen or ()) - had:
                problem = f"{owner!r} has no role {min(other)[:60]!r}: a token of it may have {', '.join(sorted(had))}"
                raise InvalidArgument(problem, argument="roles")
            token, secret = make_token(owner, now, now + round(life * 1000), chosen, text)
            return replace(state, tokens={**tokens, token.id: token}), (token, secret)

        self._change(edit, done)

    def revoke_token(self, done: Changed[Token], id: str) -> None:
        """Remove a token: what has logged in with it is closed."""

        def edit(state: SavedState) -> tuple[SavedState, Token]:
            if id not in state.tokens:
                raise UnknownToken(f"there is no token {id[:60]!r}", token=id[:60])
            tokens = {key: token for key, token in state.tokens.items() if key != id}
            return replace(state, tokens=tokens), state.tokens[id]

        self._change(edit, done)

    # Inside.

    def _change(self, edit: Edit[T], done: Changed[T]) -> None:
        if len(self._waiting) >= MOST_WAITING:
            done(BrokerBusy("too many changes of users, rules and tokens wait: try again later"))
            return
        self._waiting.append(lambda: self._begin(edit, done))
        self._next()

    def _next(self) -> None:
        if self._waiting and not self._is_writing:
            self._waiting.popleft()()

    def _begin(self, edit: Edit[T], done: Changed[T]) -> None:
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
    """A user that is to be made, written as an entry of ``[[users]]``."""
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
