"""All access rules: which of them decides what."""

from collections.abc import Callable, Iterable, Iterator

from quire.destination import ADVISORIES, Destination, DestinationKind, checked
from quire.destination_pattern import Pattern
from quire.errors import InvalidDestination
from quire.security.decision import Decision
from quire.security.principal import ANYONE, Permission, Principal
from quire.settings import Action, Rule

INTERNAL = "$quire."
"""How the names of the broker's own destinations begin."""

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
    """The rules of the settings file, those made while the broker runs, and those that give roles their meaning.

    Args:
        is_dead_letter: whether a destination is where dead letters go.
    """

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
