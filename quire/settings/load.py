"""Where values come from: the file, the environment, the flags."""

import difflib
import ipaddress
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from quire.errors import InsecureAddress, InvalidSettings
from quire.settings.keys import KEYS, Settings
from quire.settings.kinds import split_address


class Setting(NamedTuple):
    """A setting as it stands.

    Attributes:
        key: ``section.key``.
        value: sizes in bytes, durations in seconds.
        origin: ``default``, ``file NAME``, ``environment NAME`` or ``flag``.
    """

    key: str
    value: Any
    origin: str


def load(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> Settings:
    """Read the settings of a broker.

    Args:
        file: a TOML file, or None.
        environ: the environment.
        flags: values from the command line by key (``stomp.address``); None means not given.

    Returns:
        The settings, each key from where it is said most strongly.

    Raises:
        InvalidSettings: a key is unknown or a value is not allowed; ``data`` has ``key``, ``value`` and ``origin``.
        InsecureAddress: an address is not loopback and ``insecure`` is false; ``data`` has ``key`` and ``address``.
    """
    values = {setting.key: setting.value for setting in explain(file, environ, flags)}
    for key in ("stomp.address", "http.address"):
        if not values["insecure"] and not _is_loopback(values[key]):
            raise InsecureAddress(
                f"{key} = {values[key]} is not loopback, and no users are configured", key=key, address=values[key]
            )
    parts: dict[str, Any] = {}
    for part in fields(Settings):
        section: Any = part.default_factory
        parts[part.name] = (
            values[part.name]
            if part.name in KEYS
            else section(**{inner.name: values[f"{part.name}.{inner.name}"] for inner in fields(section)})
        )
    return Settings(**parts)


def explain(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> list[Setting]:
    """Say of every setting what it is and where it comes from.

    Args:
        file: as ``load``.
        environ: as ``load``.
        flags: as ``load``.

    Returns:
        One entry per key, in the order of ``KEYS``.

    Raises:
        InvalidSettings: as ``load``.
    """
    found = {key.name: Setting(key.name, key.default, "default") for key in KEYS.values()}
    for name, value, origin in (*_from_file(file), *_from_environment(environ), *_from_flags(flags)):
        if name not in KEYS:
            raise _unknown(name, origin)
        try:
            found[name] = Setting(name, KEYS[name].kind.parse(value), origin)
        except (ValueError, OverflowError) as error:
            raise InvalidSettings(
                f"{name} = {value!r} ({origin}) is not allowed: {KEYS[name].kind.allowed}",
                key=name, value=value, origin=origin,
            ) from error  # fmt: skip
    return list(found.values())


def commented_file() -> str:
    """A settings file with every key, its default and its meaning, all commented out."""
    lines = ["# Settings of a Quire broker. Each line shows a default; take the # away to change it."]
    section = ""
    for key in KEYS.values():
        head, dot, name = key.name.rpartition(".")
        if dot and head != section:
            section = head
            lines += ["", f"[{section}]"]
        lines += ["", f"# {key.text}", f"# It is {key.kind.allowed}.", f"#{name} = {key.kind.write(key.default)}"]
    return "\n".join(lines) + "\n"


def _from_file(file: Path | None) -> Iterator[Setting]:
    if file is None:
        return
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidSettings(f"the settings file {file} cannot be read: {reason}", file=str(file)) from error
    for name, value in document.items():
        if isinstance(value, dict) and name not in KEYS:
            yield from (Setting(f"{name}.{key}", inner, f"file {file}") for key, inner in value.items())
        else:
            yield Setting(name, value, f"file {file}")


def _from_environment(environ: Mapping[str, str]) -> Iterator[Setting]:
    names = {key.variable: key.name for key in KEYS.values()}
    slips = {variable.replace("__", "_"): variable for variable in names}
    for variable in sorted(name for name in environ if name.startswith("QUIRE_")):
        origin = f"environment {variable}"
        if variable in names:
            yield Setting(names[variable], environ[variable], origin)
        elif "__" in variable:
            raise _unknown(variable.removeprefix("QUIRE_").replace("__", ".").lower(), origin)
        elif variable in slips:
            raise InvalidSettings(
                f"{variable} is no setting; did you mean {slips[variable]}, with two underscores?",
                key=names[slips[variable]], origin=origin,
            )  # fmt: skip


def _from_flags(flags: Mapping[str, object]) -> Iterator[Setting]:
    return (Setting(name, value, "flag") for name, value in flags.items() if value is not None)


def _unknown(name: str, origin: str) -> InvalidSettings:
    last = name.rpartition(".")[2]
    near = difflib.get_close_matches(name, KEYS, n=1) or [key for key in KEYS if key.rpartition(".")[2] == last]
    hint = f"did you mean {near[0]}?" if near else "`quire config init -` prints all there are"
    return InvalidSettings(f"{name} ({origin}) is no setting; {hint}", key=name, origin=origin)


def _is_loopback(address: str) -> bool:
    host = split_address(address)[0]
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
