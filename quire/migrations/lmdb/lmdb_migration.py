"""Migrates an LMDB store: the steps work on a copy, which then takes the place of the data file."""

import os
import shutil
from pathlib import Path

import lmdb

from quire.errors import StoreError
from quire.migrations.lmdb import STEPS
from quire.store.lmdb import unreadable
from quire.store.maintenance.base import DATA, flush, replace_data_file

_SPARE_MAP = 1 << 30


class LmdbMigration:
    def __init__(self, path: Path) -> None:
        self._path = path

    def format(self) -> int:
        try:
            with lmdb.open(str(self._path), readonly=True, create=False, max_dbs=16) as env, env.begin() as txn:
                meta = env.open_db(b"meta", txn=txn, create=False)
                return int(txn.get(b"format", default=b"", db=meta))
        except (lmdb.Error, ValueError) as error:
            text = f"there is no readable LMDB store in {self._path}: {error}"
            raise unreadable(self._path)(text, path=str(self._path)) from error

    def steps(self, found: int) -> tuple[str, ...]:
        return tuple(step.DESCRIPTION for to, step in STEPS.items() if to > found)

    def upgrade(self, found: int, backup: str) -> str:
        """Copy, take the steps, keep the old data file as the backup, put the new one in its place."""
        work = self._path / "migrating"
        try:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            self._take_steps(work, found)
            kept = self._keep(backup) if backup else ""
            replace_data_file(work / DATA, self._path)
            return kept
        except (OSError, lmdb.Error) as error:
            text = f"the store in {self._path} could not be migrated and is unchanged: {error}"
            raise StoreError(text, path=str(self._path)) from error
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _take_steps(self, work: Path, found: int) -> None:
        with lmdb.open(str(self._path), readonly=True, create=False) as env:
            env.copy(str(work))
        size = 3 * (work / DATA).stat().st_size + _SPARE_MAP
        with lmdb.open(str(work), map_size=size, max_dbs=16, create=False) as env:
            for to, step in STEPS.items():
                if to > found:
                    step.upgrade(env)
            env.sync(True)

    def _keep(self, backup: str) -> str:
        """Give the old data file a second name, which costs no space until the first one is removed."""
        target = self._path.with_name(self._path.name + backup)
        target.mkdir()
        os.link(self._path / DATA, target / DATA)
        flush(target)
        flush(target.parent)
        return str(target)
