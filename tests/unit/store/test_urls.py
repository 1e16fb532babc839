"""Store URLs: which store they name, and what is said about a wrong one."""

import subprocess
import sys

import pytest

from quire.errors import InvalidArgument
from quire.store.lmdb import LmdbStore
from quire.store.memory import MemoryStore
from quire.store.postgresql.store import PostgresqlStore
from quire.store.sqlite import SqliteStore
from quire.store.urls import shown, store_for_url


@pytest.mark.parametrize(
    ("url", "kind", "written"),
    [
        ("memory:", MemoryStore, "memory:"),
        ("lmdb:///var/lib/quire", LmdbStore, "lmdb:///var/lib/quire"),
        ("lmdb:////var/lib/quire", LmdbStore, "lmdb:///var/lib/quire"),
        ("lmdb:///var/my%20quire", LmdbStore, "lmdb:///var/my%20quire"),
        ("sqlite:///var/lib/quire.db", SqliteStore, "sqlite:///var/lib/quire.db"),
        ("sqlite:////var/lib/quire.db", SqliteStore, "sqlite:///var/lib/quire.db"),
        ("postgresql+psycopg://u:p@host/db", PostgresqlStore, "postgresql+psycopg://u:p@host/db"),
        ("postgresql://u:p@host/db", PostgresqlStore, "postgresql://u:p@host/db"),
        ("postgres://u:p@host/db", PostgresqlStore, "postgres://u:p@host/db"),
    ],
)
def test_url_names_a_store(url: str, kind: type, written: str) -> None:
    store = store_for_url(url)
    assert type(store) is kind
    assert store.url == written


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("", "write lmdb:///"),
        ("/var/lib/quire", "write lmdb:///"),
        ("lmbd:///var/lib/quire", "did you mean lmdb?"),
        ("postgresq://host/db", "did you mean postgresql?"),
        ("postgresql+asyncpg://host/db", "did you mean postgresql?"),
        ("memory://", "did you mean memory:?"),
        ("lmdb://var/lib/quire", "three slashes"),
        ("lmdb:relative", "three slashes"),
        ("sqlite://", "three slashes"),
        ("sqlite:///", "three slashes"),
        ("sqlite:///a.db?mode=ro", "%3F"),
        ("lmdb:///a#b", "%23"),
        ("postgresql://u:secret@host:port/db", "postgresql://user@host:5432/name"),
    ],
)
def test_wrong_url_is_explained(url: str, advice: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        store_for_url(url)
    assert advice in str(caught.value)
    assert "secret" not in str(caught.value)


def test_wrong_url_does_not_tell_its_password() -> None:
    with pytest.raises(InvalidArgument) as caught:
        store_for_url("postgresq://user:secret@host/db")
    assert "secret" not in str(caught.value)
    assert "secret" not in str(caught.value.data)


def test_a_password_is_not_shown() -> None:
    assert shown("postgresql+psycopg://me:secret@host/db") == "postgresql+psycopg://me:***@host/db"
    assert shown("lmdb:///a:b@c") == "lmdb:///a:b@c"


@pytest.mark.slow
def test_only_the_back_end_asked_for_is_imported() -> None:
    program = (
        "import sys; from quire.store.urls import store_for_url; store_for_url('memory:');"
        "print(sorted({'lmdb', 'sqlalchemy', 'psycopg'} & set(sys.modules)));"
        "store_for_url('sqlite:///x.db'); print(sorted({'lmdb', 'sqlalchemy', 'psycopg'} & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert printed == "[]\n[]\n"
