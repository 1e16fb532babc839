"""The subject of a client certificate, as users are configured with it."""

from collections.abc import Mapping
from typing import Any

_SHORT = {
    "commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU", "countryName": "C",
    "localityName": "L", "stateOrProvinceName": "ST", "domainComponent": "DC", "userId": "UID",
}  # fmt: skip
_SPECIAL = frozenset(',+"\\<>;=')


def certificate_subject(certificate: Mapping[str, Any] | None) -> str:
    """The subject as RFC 4514 writes it, the most particular first: ``CN=alice,O=Example``; empty without one."""
    if not certificate:
        return ""
    parts = ["+".join([f"{_SHORT.get(key, key)}={_escaped(value)}" for key, value in part])
             for part in certificate.get("subject", ())]  # fmt: skip
    return ",".join(reversed(parts))


def _escaped(value: str) -> str:
    """A value in which nothing can be taken for the beginning of another part."""
    text = "".join([_escaped_character(char) for char in value])
    return f"\\{text}" if text[:1] in (" ", "#") else text


def _escaped_character(char: str) -> str:
    if char in _SPECIAL:
        return f"\\{char}"
    return char if char.isprintable() else "".join([f"\\{byte:02X}" for byte in char.encode()])
