"""Users and rules for the table of what each user may do at the doors of clients."""

from dataclasses import replace
from typing import Any

from quire.security.accounts import SavedState, Token, make_token
from quire.settings.users import read_rules, read_users
from quire.testing.stepped import SteppedBroker

ALL = ["read", "write", "create", "manage"]
RULES: list[dict[str, Any]] = [
    {"subject": "user:allowed", "allow": ALL, "destination": ">"},
    {"subject": "role:denied", "allow": ALL, "destination": ">"},
    {"subject": "user:denied", "deny": ALL, "destination": "q"},
    *[{"subject": f"user:{action}", "allow": [action], "destination": "q"} for action in ALL],
]
NAMES = ("none", "monitor", "operator", "administrator", "allowed", "denied", "expired", "revoked", "other", *ALL)
REFUSED = {"anonymous", "expired", "revoked"}
"""Who does not get in, or not any more."""

LOGIN = set(NAMES) - REFUSED - {"other"}
NOBODY: set[str] = set()
ADMINISTRATOR = {"administrator"}
OPERATE = {"operator", "administrator"}
READ = {"administrator", "allowed", "read"}
WRITE = {"administrator", "allowed", "write"}
MANAGE = OPERATE | {"allowed", "manage"}
NEW = {"administrator", "allowed", "denied"}
"""Who may read, write and create what no rule names."""


def secure(stepped: SteppedBroker) -> dict[str, str]:
    """Give a broker users and rules; a token for each user, by name. That of ``other`` is for whom a row needs."""
    now, tokens, secrets = stepped.clock.now_ms(), dict[str, Token](), {"anonymous": ""}
    for name in NAMES:
        token, secrets[name] = make_token(name, now, now + (1000 if name == "expired" else 3_600_000))
        tokens[token.id] = token
    accounts = stepped.security.accounts
    users = read_users([{"name": name, "roles": [name]} for name in NAMES], "test")
    rules = read_rules([*RULES, {"subject": "user:other", "allow": ALL, "destination": ">"}], "test")
    accounts.take(replace(accounts.settings, users=users, rules=rules), SavedState(tokens=tokens))
    return secrets


def deny_writes(stepped: SteppedBroker, destination: str = "q") -> None:
    accounts = stepped.security.accounts
    denied = read_rules([{"subject": "*", "deny": ["write"], "destination": destination}], "test")
    accounts.take(replace(accounts.settings, rules=(*accounts.settings.rules, *denied)), accounts.state)


def end_proofs(stepped: SteppedBroker) -> None:
    """The token of one user has ended, and that of another is taken away: their connections end at once."""
    stepped.advance(2)
    accounts = stepped.security.accounts
    tokens = {id: token for id, token in accounts.state.tokens.items() if token.owner != "revoked"}
    accounts.take(accounts.settings, SavedState(tokens=tokens))
    stepped.run()
