"""The overview: what the broker does now, and what needs attention."""

from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.detail import PLOTS
from quire.console.elements import Facts, Tiles, Tone, block, say
from quire.console.page import Page, subject_link
from quire.console.plot import Plots
from quire.console.tables import LocalTable, columns_of
from quire.resources import HeldProducer

REFRESH = 2.0  # how often the numbers are asked for, in seconds
NEAR = 0.9  # from this part of a limit on, its use is shown as a trouble

COUNTS = {
    "queues": "Queues", "topics": "Topics", "streams": "Streams", "durables": "Durable subscriptions",
    "groups": "Consumer groups", "scheduled": "Scheduled messages", "prepared": "Prepared transactions",
    "temporaries": "Temporary destinations",
}  # fmt: skip


async def build(page: Page) -> None:
    """Build it. Who may not see the broker as a whole begins with the queues."""
    if not page.may("monitor"):
        page.go("/queues")
        return
    overview = await page.get("/overview")
    with page.frame(overview["name"], "overview"):
        view = _Overview(page)
        view.show(overview)
        await view.plots.load()
    page.watch("/overview", REFRESH, view.show)


class _Overview:
    def __init__(self, page: Page) -> None:
        self._page = page
        self._told: list[dict[str, Any]] | None = None
        self.tiles = Tiles(["Rate in", "Rate out", "Messages", "Oldest message", "Connections", "Memory", "Store"])
        with block("card").props('aria-live="polite"'):
            say("Attention", "h2")
            self.attention = block("")
        self.plots = Plots(page, "broker", None, PLOTS)
        self.held_title = say("Producers held", "h2", "bare")
        self.held = LocalTable(columns_of(HeldProducer), "None.")
        with block("card"):
            say("Broker", "h2")
            self.facts = Facts()

    def show(self, now: dict[str, Any]) -> None:
        tiles, oldest = self.tiles, now["oldest"]
        tiles.show("Rate in", shown.rate(now["in_rate"]))
        tiles.show("Rate out", shown.rate(now["out_rate"]))
        tiles.show("Messages", shown.number(now["depth"]), f"{shown.number(now['in_flight'])} in flight")
        age = shown.span(oldest["age_seconds"]) if oldest else shown.UNKNOWN
        tiles.show("Oldest message", age, f"{oldest['kind']} {shown.text(oldest['name'], 40)}" if oldest else "")
        held = now["held"]
        note = f"{held} held" if held else f"{shown.number(now['consumers'])} consumers"
        tiles.show("Connections", shown.number(now["connections"]), note, "bad" if held else "")
        for name, use in (("Memory", now["memory"]), ("Store", now["store"])):
            tiles.show(name, shown.size(use["used"]), f"of {shown.size(use['limit'])}", _tone(use))
        self._show_attention(now["attention"], now["attention_left_out"])
        self.held_title.set_visibility(bool(held))
        self.held.card.set_visibility(bool(held))
        self.held.show(now["producers_held"])
        self.facts.show(_facts(now))

    def _show_attention(self, entries: list[dict[str, Any]], left_out: int) -> None:
        if entries == self._told:
            return
        self._told = entries
        self.attention.clear()
        with self.attention:
            if not entries:
                say("Nothing needs attention.", classes="mute")
            for entry in entries:
                with block(f"attention {entry['severity']}"):
                    block("dot").props(f'role="img" aria-label="{shown.words(entry["severity"])}"')
                    with block("say"):
                        link = subject_link(self._page, entry["kind"], entry["name"])
                        subject = f"{entry['kind']} {shown.text(entry['name'], 80)}"
                        if link:
                            ui.link(subject, link)
                        else:
                            say(subject)
                        say(f": {shown.text(entry['text'], 400)}")
                        if (since := entry.get("since_seconds")) is not None:
                            say(f" for {shown.span(since)}", classes="mute small")
                    say(shown.text(entry["advice"], 400), "div", "do")
            if left_out:
                say(f"and {shown.number(left_out)} more", classes="mute small")


def _tone(use: dict[str, Any]) -> Tone:
    return "bad" if use["limit"] and use["used"] >= NEAR * use["limit"] else ""


def _facts(now: dict[str, Any]) -> dict[str, tuple[str, Tone] | str]:
    running: Tone = "good" if now["state"] == "running" else "bad"
    free = [shown.size(disk["free"]) for disk in now["disks"]]
    return {
        "State": (now["state"], running),
        "Version": now["version"],
        "Up for": shown.span(now["uptime_seconds"]),
        "In flight": shown.number(now["in_flight"]),
        "Consumers": shown.number(now["consumers"]),
        **{label: shown.number(now["counts"][name]) for name, label in COUNTS.items()},
        "Spool": f"{shown.size(now['spool']['used'])} of {shown.size(now['spool']['limit'])}",
        "Disk free": ", ".join(free) or shown.UNKNOWN,
    }
