"""The users, rules and tokens that are made while the broker runs, and the file that keeps them."""

import contextlib
import errno
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from quire.errors import InvalidSettings, QuireError, StoreFull, StoreUnreachable
from quire.security.tokens import Token, read_token
from quire.settings import Rule, User
from quire.settings.rules import read_rule
from quire.settings.users import read_users

MOST = 10_000
"""How many users, rules and tokens there may be of each."""

MAX_SIZE = 64 * 2**20
"""The largest file that is read, in bytes."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """What the file has.

    Attributes:
        users: by name.
        rules: by id.
        tokens: by id.
        next_rule: the number of the next rule.
    """

    users: dict[str, User] = field(default_factory=dict)
    rules: dict[str, Rule] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    next_rule: int = 1

    def encoded(self) -> bytes:
        """The file's content."""
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
    """A rule as an entry of ``[[rules]]``."""
    effect = "allow" if rule.allow else "deny"
    return {"subject": rule.subject, effect: rule.listed.split(","), "destination": rule.destination}


def load_state(file: Path) -> SavedState:
    """Read the file; without one there is nothing. It may raise ``InvalidSettings``."""
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
