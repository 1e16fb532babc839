"""The kept samples are what their script makes."""

import sqlite3
from contextlib import closing
from pathlib import Path

import lmdb

from tests.samples import make_version_1 as sample
from tests.samples import make_version_2


def test_lmdb(tmp_path: Path) -> None:
    sample.make_lmdb(tmp_path / "made")
    assert lmdb_content(tmp_path / "made") == lmdb_content(sample.LMDB)


def test_sqlite(tmp_path: Path) -> None:
    sample.make_sqlite(tmp_path / "made")
    assert sqlite_content(tmp_path / "made") == sqlite_content(sample.SQLITE)


def test_postgresql(tmp_path: Path) -> None:
    sample.make_postgresql(tmp_path / "made")
    assert (tmp_path / "made").read_text() == sample.POSTGRESQL.read_text()


def test_version_2_on_sqlite(tmp_path: Path) -> None:
    make_version_2.make_sqlite(tmp_path / "made")
    assert sqlite_content(tmp_path / "made") == sqlite_content(make_version_2.SQLITE)


def test_version_2_on_postgresql(tmp_path: Path) -> None:
    make_version_2.make_postgresql(tmp_path / "made")
    assert (tmp_path / "made").read_text() == make_version_2.POSTGRESQL.read_text()


def lmdb_content(directory: Path) -> dict[bytes, list[tuple[bytes, bytes]]]:
    with lmdb.open(str(directory), readonly=True, lock=False, max_dbs=16) as env:
        with env.begin() as txn:
            names = [bytes(name) for name, _ in txn.cursor()]
        dbs = {name: env.open_db(name, create=False) for name in names}
        with env.begin() as txn:
            return {name: [(bytes(key), bytes(value)) for key, value in txn.cursor(db)] for name, db in dbs.items()}


def sqlite_content(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as connection:
        return list(connection.iterdump())
