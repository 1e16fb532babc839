"""``quire broker`` and ``quire cluster``: start a broker, look at it, stop it; look at a cluster, move shards."""

import os
from pathlib import Path

import click

from quire.cli.api import Api, broker_verb, path
from quire.cli.config import setting_flags
from quire.cli.output import Output, columns_of, output_option
from quire.cli.resource import HELD
from quire.destination import written
from quire.resources import ClusterBroker, PinnedDestination, Shard
from quire.settings import KEYS, Settings, load


@click.group()
@output_option
def broker() -> None:
    """Start, inspect and stop a broker."""


@broker.command()
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="A settings file (TOML).")
@setting_flags
@click.option("--standby", is_flag=True, help="Wait while another broker has the lock of the store, then take over.")
@click.option("--shards", metavar="N", help=KEYS["broker.shards"].text)
@output_option
@click.pass_context
def start(
    context: click.Context, file: Path | None, standby: bool, shards: str | None, flags: dict[str, object]
) -> None:  # fmt: skip
    """Start a broker in the foreground. SIGINT or SIGTERM stops it; SIGHUP makes it reload its policies."""
    flags["broker.shards"] = shards

    def read() -> Settings:
        return load(file, os.environ, flags)

    settings = read()
    # The broker's own modules are needed by this verb alone.
    from quire.server.cluster.shard_places import local_flags

    if local := local_flags(settings):
        if standby:
            raise click.UsageError("a broker with shards has no standby: run a cluster on PostgreSQL")
        context.exit(run_with_shards(file, flags | local))
    from quire.http.http_api import HttpApi
    from quire.server.process import run

    context.exit(run(settings, standby=standby, http=HttpApi(), reload=read))


def run_with_shards(file: Path | None, flags: dict[str, object]) -> int:
    from quire.http.console_launcher import ConsoleLauncher
    from quire.server.cluster.broker_process import run

    settings = load(file, os.environ, flags)
    return run(settings, file, flags, "quire.http.shard", ConsoleLauncher(settings))


@broker.command()
@broker_verb
def status(api: Api, output: Output) -> None:
    """Show a running broker's state, memory, store and connections."""
    output.details(api.call("GET", path("broker")), {"producers_held": ("Producers held", HELD)})


@broker.command()
@broker_verb
def stop(api: Api, output: Output) -> None:
    """Stop a running broker. All messages that it confirmed are on disk."""
    output.done("the broker is stopping", api.call("POST", "/broker/stop"))


@click.group()
@output_option
def cluster() -> None:
    """Run many brokers as one; move shards between them."""


@cluster.command("start")
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="A settings file (TOML).")
@setting_flags
@output_option
@click.pass_context
def start_member(context: click.Context, file: Path | None, flags: dict[str, object]) -> None:
    """Start a broker of the cluster whose database `cluster.store` names, in the foreground.

    SIGINT or SIGTERM makes it leave: others take its shards first. A second one stops it at once.
    """
    context.exit(run_with_shards(file, flags))


@cluster.command("status")
@broker_verb
def cluster_status(api: Api, output: Output) -> None:
    """Show the brokers of the cluster, its shards and what is pinned."""
    tables = {
        "brokers": ("Brokers", columns_of(ClusterBroker)), "shards": ("Shards", columns_of(Shard)),
        "pins": ("Pinned destinations", columns_of(PinnedDestination)),
    }  # fmt: skip
    output.details(api.call("GET", path("cluster")), tables)


@cluster.command()
@broker_verb
def shards(api: Api, output: Output) -> None:
    """List the shards with the brokers that run them."""
    output.rows(api.call("GET", path("cluster"))["shards"], columns_of(Shard))


@cluster.command()
@click.argument("destination")
@click.option("--shard", type=click.IntRange(0), metavar="SHARD", help="Pin the destination to this shard.")
@click.option("--unpin", is_flag=True, help="Remove the pin of the destination.")
@broker_verb
def place(api: Api, output: Output, destination: str, shard: int | None, unpin: bool) -> None:
    """Show which shard has a destination, or pin it; it must not exist then.

    DESTINATION is orders, queue://orders, topic://prices or stream://log. Destinations that lie together, such as a
    virtual topic and its queues, are pinned together.
    """
    if unpin and shard is not None:
        raise click.UsageError("give --shard or --unpin")
    address = written(destination)
    where = path("cluster", "places", address.kind, address.name)
    if shard is None and not unpin:
        output.record(api.call("GET", where))
        return
    result = api.call("DELETE", where) if unpin else api.call("PUT", where, {"shard": shard})
    output.done(result["asked"], result)


@cluster.command()
@click.argument("shard", type=click.IntRange(0))
@click.argument("broker", required=False)
@broker_verb
def move(api: Api, output: Output, shard: int, broker: str | None) -> None:
    """Move a shard to a broker, where it stays while that broker lives; without BROKER it may run at any again."""
    result = api.call("POST", path("cluster", "shards", str(shard), "move"), {"broker": broker})
    output.done(result["asked"], result)


@cluster.command()
@click.argument("broker", required=False)
@broker_verb
def leave(api: Api, output: Output, broker: str | None) -> None:
    """Have a broker leave: others take its shards, then it stops. Without BROKER it is the one that is asked."""
    result = api.call("POST", path("cluster", "leave"), {"broker": broker})
    output.done(result["asked"], result)
