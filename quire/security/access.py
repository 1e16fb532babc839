"""What one connection may do: the rules for its user, remembered until something changes."""

from quire.destination import DestinationKind
from quire.errors import AccessRefused, NotAuthenticated, QuireError
from quire.security.accounts import Accounts
from quire.security.audit_log import AuditLog
from quire.security.credentials import Origin
from quire.security.principal import Permission, Principal
from quire.settings import Action

CACHED = 1000
"""How many decisions one connection remembers; with more the memory begins anew."""


class Access:
    """One connection's view of the rules, made by ``Security.authenticate``. A door asks it once for each destination.

    After every change of users, rules or tokens, and when a proof ends, ``Security`` calls its watchers: then the door
    looks at ``ended``, and asks again about what its connection has open.
    """

    __slots__ = ("_accounts", "_audit", "_ended", "_generation", "_known", "_principal", "origin")

    def __init__(self, accounts: Accounts, audit: AuditLog, principal: Principal, origin: Origin) -> None:
        self._accounts = accounts
        self._audit = audit
        self._principal = principal
        self.origin = origin  # where the connection comes from
        self._generation = accounts.generation
        self._known: dict[tuple[Action, DestinationKind, str], bool] = {}
        self._ended = False

    @property
    def principal(self) -> Principal:
        """Who it is, with the roles of now."""
        self._renew()
        return self._principal

    @property
    def ended(self) -> QuireError | None:
        """Why the connection must be closed: the proof has ended, or the user is gone; None if all is well."""
        self._renew()
        if self._ended:
            return NotAuthenticated("the login is no longer valid: it has expired, or it was changed or revoked")
        return None

    def allows(self, action: Action, kind: DestinationKind, name: str) -> bool:
        """Whether it may do something with a destination; the name is plain, without wildcards."""
        return self._decide(action, kind, name, tells=False)

    def check(self, action: Action, kind: DestinationKind, name: str, *, exists: bool = True) -> None:
        """Refuse what it may not do with a destination; the audit log has it as the settings say.

        Args:
            exists: whether the destination is there; else it must be allowed to create it too.

        Raises:
            AccessRefused: it may not; whether the destination is there, the error does not say.
            NotAuthenticated: the login has ended.
        """
        if not self._decide(action, kind, name, tells=True):
            raise self.refusal(action, kind, name)
        if not exists and not self._decide(Action.CREATE, kind, name, tells=True):
            raise self.refusal(Action.CREATE, kind, name)

    def refusal(self, action: Action, kind: DestinationKind, name: str) -> QuireError:
        """The error for what it may not do."""
        if error := self.ended:
            return error
        text = f"user {self._principal.name!r} may not {action} {kind}://{name}"
        return AccessRefused(text, action=str(action), destination=f"{kind}://{name}")

    def sees(self, kind: DestinationKind, name: str) -> bool:
        """Whether it may know that a destination is there, and its counts."""
        return self.may(Permission.MONITOR) or any(
            [self.allows(action, kind, name) for action in (Action.READ, Action.WRITE, Action.MANAGE)]
        )

    def may(self, permission: Permission) -> bool:
        """Whether it has a permission that is not about one destination."""
        self._renew()
        return not self._ended and self._principal.may(permission)

    def require(self, permission: Permission) -> None:
        """Refuse what it has no permission for."""
        if error := self.ended:
            raise error
        if not self._principal.may(permission):
            text = f"user {self._principal.name!r} has no role that may {permission}"
            raise AccessRefused(text, permission=str(permission))

    def _decide(self, action: Action, kind: DestinationKind, name: str, *, tells: bool) -> bool:
        if self._generation != self._accounts.generation:
            self._renew()
        key = (action, kind, name)
        known = self._known.get(key)
        if known is None:
            known = not self._ended and self._accounts.decide(self._principal, action, kind, name).allowed
            if len(self._known) >= CACHED:
                self._known.clear()
            self._known[key] = known
            if tells:
                self._audit.data_action(self._principal.name, self.origin, action, f"{kind}://{name}", allowed=known)
        return known

    def _renew(self) -> None:
        """After a change: who it is now, and nothing of what was known before."""
        if self._generation == self._accounts.generation:
            return
        self._generation = self._accounts.generation
        self._known.clear()
        standing = None if self._ended else self._accounts.standing(self._principal)
        self._ended = standing is None
        self._principal = standing or self._principal
