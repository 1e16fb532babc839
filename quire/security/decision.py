"""The answer to whether one may do something, and why."""

from dataclasses import dataclass

from quire.destination import DestinationKind
from quire.settings import Action, Rule


@dataclass(frozen=True, slots=True)
class Decision:
    """What rules say of one action of a user.

    Attributes:
        allowed: whether the user may.
        action: what the user wants to do.
        kind: the kind of the destination.
        name: its name.
        rule: the rule that decides; None if none does.
        losers: the rules that match too and say something else.
        reason: what decides if no rule does.
        hint: what may have been meant instead; empty for nothing.
    """

    allowed: bool
    action: Action
    kind: DestinationKind
    name: str
    rule: Rule | None = None
    losers: tuple[Rule, ...] = ()
    reason: str = ""
    hint: str = ""

    def __str__(self) -> str:
        verdict = "allowed" if self.allowed else "refused"
        text = f"{self.action} {self.kind}://{self.name} is {verdict}: {self.rule or self.reason}"
        if self.losers:
            text += "; overruled: " + "; ".join(map(str, self.losers))
        return f"{text}; {self.hint}" if self.hint else text
