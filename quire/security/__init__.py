"""Who one is and what one may do: the one place that decides for every door.

It knows no broker, no protocol, no socket and no event loop. A door calls ``Security.authenticate`` and gets an
``Access``, which it asks once for each destination.
"""

from quire.security.access import Access
from quire.security.authentication import Security
from quire.security.principal import ANYONE, Credentials, Origin, Permission, Principal, Proof
from quire.settings import Action

__all__ = ["ANYONE", "Access", "Action", "Credentials", "Origin", "Permission", "Principal", "Proof", "Security"]
