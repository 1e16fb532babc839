"""``quire store``: look into a store, and look after it, while no broker runs on it."""

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Concatenate, ParamSpec, TextIO

import click

from quire import migrations
from quire.cli.output import Output, columns, confirm, messages, on_terminal, output_option
from quire.cli.resource import YES
from quire.errors import StoreError, UnknownDestination
from quire.settings import KEYS, load, store_url
from quire.store.base import Store, newest_format
from quire.store.disk import private_files
from quire.store.maintenance.backups import restore as restore_store
from quire.store.maintenance.base import damaged_file
from quire.store.maintenance.open_store import OpenStore, open_for_reading, open_for_writing
from quire.store.maintenance.open_store import repair as repair_store
from quire.store.maintenance.transfer import body_part, import_lines
from quire.store.maintenance.transfer import export as export_lines
from quire.store.maintenance.verify import Progress, chain, find_destination, find_message
from quire.store.maintenance.verify import verify as verify_store
from quire.store.urls import shown, store_path, stores_of

P = ParamSpec("P")

LANE = ("lane", "count:Messages", "bytes", "head", "tail", "next_sequence", "dispatch_mark")
LANE_COLUMNS, SHARD_LANE_COLUMNS = columns("destination", *LANE), columns("destination", "shard", *LANE)
INFO_COLUMNS = columns("shard", "url:Store", "format", "size", "lock_owner", "destinations", "messages", "bytes")
SUMMED = ("size", "disk_bytes", "destinations", "lanes", "messages", "bytes")
LINK_COLUMNS = columns("previous", "sequence", "next", "size", "checksum")
SHARD = "The shard that is meant, of a broker with shards."


def store_verb(verb: Callable[Concatenate[str, Output, P], None]) -> Callable[..., None]:
    """A verb that works on one store: it gets its URL and an ``Output``, and the options that say which."""

    def of_one(urls: list[str], output: Output, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if len(urls) > 1:
            raise click.UsageError(f"the broker has {len(urls)} shards: give --shard 0 to {len(urls) - 1}")
        verb(urls[0], output, *args, **kwargs)

    functools.update_wrapper(of_one, verb)
    return stores_verb(of_one)


def stores_verb(verb: Callable[Concatenate[list[str], Output, P], None]) -> Callable[..., None]:
    """A verb that works on the stores of all shards: it gets their URLs, mostly one, as ``store_verb``."""

    @click.option("--data", metavar="DIR", help=KEYS["store.data"].text)
    @click.option("--store", "store_option", metavar="URL", help=KEYS["store.url"].text)
    @click.option("--shard", type=click.IntRange(0), metavar="N", help=SHARD)
    @output_option
    @functools.wraps(verb)
    def with_store(*args: P.args, **kwargs: P.kwargs) -> None:
        flags = {"store.data": kwargs.pop("data"), "store.url": kwargs.pop("store_option"), "insecure": True}
        urls, shard = stores_of(store_url(load(None, os.environ, flags))), kwargs.pop("shard")
        assert shard is None or isinstance(shard, int)
        if shard is not None and shard >= len(urls):
            raise click.UsageError(f"there is no shard {shard}: the broker has {len(urls)}")
        try:
            with private_files():
                verb(urls if shard is None else [urls[shard]], click.get_current_context().obj, *args, **kwargs)
        except BrokenPipeError:  # who reads the output has enough: click ends quietly
            raise
        except OSError as error:
            raise StoreError(f"{error.strerror}: {error.filename}", path=str(error.filename)) from error

    return with_store


@click.group()
@output_option
def store() -> None:
    """Verify, repair, migrate, back up a store.

    Verbs that only read also work beside a running broker. Verbs that write need the lock: stop the broker first.
    """


@store.command()
@stores_verb
def info(urls: list[str], output: Output) -> None:
    """Show the store's place, format, size, lock owner and counts."""
    found = [_info(url) for url in urls]
    if len(found) == 1:
        output.record(found[0])
        return
    sums = {name: sum([row[name] for row in found]) for name in SUMMED}
    rows = [{"shard": shard} | row for shard, row in enumerate(found)]
    output.details({"shards": len(found), **sums, "stores": rows}, {"stores": ("Shards", INFO_COLUMNS)})


def _info(url: str) -> dict[str, Any]:
    with open_for_reading(url) as (opened, maintenance):
        destinations = opened.destinations()
        states = [opened.lane_state(lane) for destination in destinations for lane in destination.lanes]
        return {
            "url": shown(url),
            "format": newest_format(url),
            "size": opened.size(),
            "disk_bytes": maintenance.disk_bytes(),
            "files": {str(file): {"size": file.stat().st_size} for file in maintenance.files()},
            "lock_owner": opened.lock_owner() or None,
            "destinations": len(destinations),
            "lanes": len(states),
            "messages": sum(state.count for state in states),
            "bytes": sum(state.bytes for state in states),
        }


@store.command()
@stores_verb
def ls(urls: list[str], output: Output) -> None:
    """List the destinations with the state of their lanes."""

    def lanes() -> Iterator[dict[str, Any]]:
        for shard, url in enumerate(urls):
            with open_for_reading(url) as (opened, _):
                for owner in opened.destinations():
                    for lane in owner.lanes:
                        place = {"destination": f"{owner.kind}://{owner.name}", "shard": shard, "lane": lane}
                        yield place | opened.lane_state(lane)._asdict()

    output.rows(lanes(), LANE_COLUMNS if len(urls) == 1 else SHARD_LANE_COLUMNS)


@contextmanager
def _store_of(urls: list[str], destination: str) -> Iterator[Store]:
    """The store that has a destination; of several shards one has it."""
    for url in urls:
        with open_for_reading(url) as (opened, _):
            if url == urls[-1] or _has(opened, destination):
                yield opened
                return


def _has(opened: Store, destination: str) -> bool:
    with opened.snapshot() as reader:
        try:
            find_destination(reader, destination)
        except UnknownDestination:
            return False
    return True


@store.command()
@click.argument("destination")
@click.argument("sequence", type=click.IntRange(1))
@stores_verb
def show(urls: list[str], output: Output, destination: str, sequence: int) -> None:
    """Show one message with its headers and its body."""
    with _store_of(urls, destination) as opened, opened.snapshot() as reader:
        lane, message = find_message(reader, find_destination(reader, destination), sequence)
        states = [state for at, state in reader.deliveries(lane, sequence, 1) if at == sequence]
    output.record(
        {
            "destination": destination,
            "lane": lane,
            "sequence": sequence,
            "size": message.size,
            "priority": message.priority,
            "expiration": message.expiration,
            "delivery": states[0]._asdict() if states else None,
            "headers": message.headers(),
            **body_part(message.body),
        }
    )


@store.command()
@click.argument("destination")
@click.argument("sequence", type=click.IntRange(1))
@click.option(
    "--around", type=click.IntRange(0), default=5, show_default=True, help="How many records before and after it."
)
@stores_verb
def links(urls: list[str], output: Output, destination: str, sequence: int, around: int) -> None:
    """Show the chain of links around a message."""
    with _store_of(urls, destination) as opened, opened.snapshot() as reader:
        found = chain(reader, find_destination(reader, destination), sequence, around)
    output.rows([link._asdict() for link in found], LINK_COLUMNS)


@store.command()
@stores_verb
@click.pass_context
def verify(context: click.Context, urls: list[str], output: Output) -> None:
    """Check every lane in both directions and every record, and list all problems.

    The exit code is 0 if there is no problem, otherwise 1.
    """
    wrong = 0

    def findings() -> Iterator[dict[str, Any]]:
        nonlocal wrong
        for shard, url in enumerate(urls):
            with open_for_reading(url) as opened, _progress(opened) as progress:
                for finding in verify_store(opened.store, opened.maintenance, progress):
                    wrong += 1
                    yield ({"shard": shard} if len(urls) > 1 else {}) | finding._asdict()

    output.texts(
        findings(),
        [*(["shard"] if len(urls) > 1 else []), "problem", "destination", "lane", "sequence", "text"],
        lambda row: f"{_place(row['destination'], row['lane'])}: {row['problem']}: {row['text']}",
    )
    if wrong:
        output.note(f"findings: {wrong}. Stop the broker, make a backup, then run `quire store repair`.")
        context.exit(1)
    if output.format == "table":
        click.echo("ok")


def _place(destination: str, lane: int) -> str:
    return destination or (f"lane {lane}" if lane else "store")


@contextmanager
def _progress(opened: OpenStore) -> Iterator[Progress]:
    if not on_terminal(sys.stderr):
        yield lambda records: None
        return
    # Rich takes a tenth of a second to import: only those who see its bar pay.
    from rich.console import Console
    from rich.progress import Progress as Bar

    known = opened.store.destinations()
    total = sum(opened.store.lane_state(lane).count for destination in known for lane in destination.lanes)
    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("verify", total=total)
        yield lambda records: bar.advance(task, records)


@store.command()
@store_verb
def repair(url: str, output: Output) -> None:
    """Rebuild links, counts and indexes from the records.

    Damaged records are moved to a file beside the store.
    """
    with open_for_writing(url) as opened:
        report = repair_store(opened, damaged_file(store_path(url)))
    counts = ", ".join(f"{name} {count}" for name, count in report._asdict().items() if count)
    result = report._asdict() | {"damaged_file": report.damaged_file and str(report.damaged_file)}
    output.done(f"repaired: {counts}" if report.changed else "nothing had to be repaired", result)


@store.command()
@click.argument("file", type=click.File("w", encoding="utf-8"), default="-")
@store_verb
def export(url: str, output: Output, file: TextIO) -> None:
    """Write everything the store has as JSON, one object a line.

    FILE is standard output if it is not given.
    """
    with open_for_reading(url) as opened:
        for line in export_lines(opened.store):
            file.write(line + "\n")


@store.command("import")
@click.argument("file", type=click.File("rb"), default="-")
@store_verb
def import_(url: str, output: Output, file: BinaryIO) -> None:
    """Import what `export` wrote into a store, which is created if it does not exist.

    FILE is standard input if it is not given. After a failure, the store keeps what was imported before it.
    """
    with open_for_writing(url, create=True) as opened:
        report = import_lines(opened.store, file)
    output.done(f"imported {messages(report.messages)}", report._asdict())


@store.command()
@store_verb
def compact(url: str, output: Output) -> None:
    """Rewrite the store without the free space of removed messages."""
    with open_for_writing(url) as (_, maintenance):
        before = maintenance.disk_bytes()
        maintenance.compact()
        after = maintenance.disk_bytes()
    output.done(f"compacted: {before} bytes before, {after} after", {"before": before, "after": after})


@store.command()
@click.argument("target", type=click.Path(path_type=Path))
@stores_verb
def backup(urls: list[str], output: Output, target: Path) -> None:
    """Copy the store to TARGET; this works beside a running broker too.

    Of a broker with shards, TARGET is a directory with a copy for each: TARGET/shard-0 and so on.
    """
    if len(urls) > 1:
        target.mkdir(parents=True, exist_ok=True)
    for shard, url in enumerate(urls):
        with open_for_reading(url) as (_, maintenance):
            maintenance.backup(target / f"shard-{shard}" if len(urls) > 1 else target)
    output.done(f"backed up to {target}", {"target": str(target)})


@store.command()
@click.argument("source", type=click.Path(path_type=Path, exists=True))
@click.option("--force", is_flag=True, help="Replace an existing store.")
@YES
@store_verb
def restore(url: str, output: Output, source: Path, force: bool, yes: bool) -> None:
    """Restore a store from a backup."""
    if force:
        confirm(f"Replace the store {shown(url)}?", yes)
    restore_store(url, source, force=force)
    output.done(f"restored {source} to {shown(url)}", {"source": str(source), "url": shown(url)})


@store.command()
@click.option("--dry-run", is_flag=True, help="Show the steps, and change nothing.")
@click.option("--backup/--no-backup", default=True, show_default=True, help="Keep a backup beside the store.")
@store_verb
def migrate(url: str, output: Output, dry_run: bool, backup: bool) -> None:
    """Migrate a store of an older version to the current format."""
    report = migrations.migrate(url, dry_run=dry_run, backup=backup)
    if not report.steps:
        sentence = f"the store has the current format, {report.found}"
    else:
        sentence = report.sentence("would migrate" if dry_run else "migrated")
    output.done(sentence, report._asdict() | {"steps": list(report.steps), "dry_run": dry_run})


@store.command()
@click.option("--shards", type=click.IntRange(2), required=True, metavar="N", help="How many shards there will be.")
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="A settings file (TOML).")
@click.option("--data", metavar="DIR", help=KEYS["store.data"].text)
@click.option("--store", "url", metavar="URL", help=KEYS["store.url"].text)
@output_option
@click.pass_obj
def split(output: Output, shards: int, file: Path | None, data: str | None, url: str | None) -> None:
    """Divide a store among shards: the broker then runs as so many processes.

    What the store has stays at shard 0. New destinations are spread over all shards.
    """
    from quire.server.cluster.shard_places import split as split_store

    settings = load(file, os.environ, {"store.data": data, "store.url": url, "insecure": True})
    with private_files():
        pinned = split_store(settings, shards)
    result = {"shards": shards, "pinned": pinned}
    output.done(f"the store has {shards} shards; {pinned} destinations of others are pinned to shard 0", result)
