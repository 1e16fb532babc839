"""What the caller of an endpoint must be allowed to do; each row of the API names it."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from quire.destination import DestinationKind
from quire.security import Access, Action, Permission

Names = Mapping[str, str]
"""The names in the path of a request, decoded."""


class Right(NamedTuple):
    """What one must be allowed to do."""

    text: str  # in words, for the document
    check: Callable[[Access, Names], None]  # raises ``AccessRefused``, whether there is what the path names or not
    is_free: bool = False  # whether one need not log in
    is_operation: bool = True  # whether the audit log always has a call that changes something


def _nothing(_access: Access, _names: Names) -> None:
    """What the handler itself checks, since it depends on the body, or what each user may do."""


def _has(permission: Permission, text: str) -> Right:
    return Right(text, lambda access, _names: access.require(permission))


FREE = Right("none, not even a login", _nothing, is_free=True)
USER = Right("a login", _nothing)
MONITOR = _has(Permission.MONITOR, "the role monitor, operator or administrator")
OPERATE = _has(Permission.OPERATE, "the role operator or administrator")
ADMINISTER = _has(Permission.ADMINISTER, "the role administrator")


def rows_of(text: str) -> Right:
    """Data whose destinations the handler checks one by one."""
    return Right(text, _nothing, is_operation=False)


def on(kind: DestinationKind, *actions: Action, key: str = "name") -> Right:
    """One of some actions on the destination of the path."""
    is_operation = Action.MANAGE in actions  # the application tells the audit log of it, and ``Access`` of the others

    def check(access: Access, names: Names) -> None:
        if not is_operation:
            access.check(actions[0], kind, names[key])
        elif not any([access.allows(action, kind, names[key]) for action in actions]):
            raise access.refusal(actions[0], kind, names[key])

    return Right(f"{' or '.join(actions)} on the {kind}", check, is_operation=is_operation)


def seeing(kind: DestinationKind, key: str = "name") -> Right:
    """To know of the destination of the path, and its counts."""

    def check(access: Access, names: Names) -> None:
        if not access.sees(kind, names[key]):
            raise access.refusal(Action.READ, kind, names[key])

    return Right(f"monitor, or read, write or manage on the {kind}", check)


_QUEUE, _TOPIC, _STREAM = DestinationKind.QUEUE, DestinationKind.TOPIC, DestinationKind.STREAM

SEE_QUEUE, SEE_TOPIC, SEE_STREAM = seeing(_QUEUE), seeing(_TOPIC), seeing(_STREAM)
READ_QUEUE, READ_STREAM = on(_QUEUE, Action.READ), on(_STREAM, Action.READ)
WRITE_QUEUE, WRITE_TOPIC, WRITE_STREAM = on(_QUEUE, Action.WRITE), on(_TOPIC, Action.WRITE), on(_STREAM, Action.WRITE)
MAKE_QUEUE, MAKE_TOPIC, MAKE_STREAM = [on(kind, Action.CREATE, Action.MANAGE) for kind in (_QUEUE, _TOPIC, _STREAM)]
MANAGE_QUEUE, MANAGE_TOPIC, MANAGE_STREAM = [on(kind, Action.MANAGE) for kind in (_QUEUE, _TOPIC, _STREAM)]
READ_OR_MANAGE_QUEUE, READ_OR_MANAGE_STREAM = [on(kind, Action.READ, Action.MANAGE) for kind in (_QUEUE, _STREAM)]
SEE_STREAM_OF_GROUP, MANAGE_STREAM_OF_GROUP = seeing(_STREAM, "stream"), on(_STREAM, Action.MANAGE, key="stream")
