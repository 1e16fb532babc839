"""The prepared transactions: an operator decides over them when their transaction manager does not."""

from functools import partial

from nicegui import ui

from quire.console import shown
from quire.console.broker_api import path_of
from quire.console.confirm import confirm
from quire.console.page import Page
from quire.console.row_table import Entry, Verb, count_column, size_column, span_column, text_column
from quire.console.server_table import ServerTable


async def build(page: Page) -> None:
    """Build it."""
    columns = [
        text_column("xid", "Transaction", sorts=False),
        text_column("state", "State"),
        text_column("outcome", "Outcome", sorts=False),
        span_column("age", "Age", "age_seconds"),
        count_column("messages", "Messages"),
        count_column("acknowledgements", "Acknowledgements", sorts=False),
        size_column("bytes", sorts=False),
    ]
    with page.frame("Prepared transactions", "transactions"):
        table = ServerTable(
            page, "transactions", columns, path="/xa", sort="-age", search="Search transactions",
            filters={"undecided": "Undecided"}, empty="No transaction waits for its outcome.", identity="xid",
        )  # fmt: skip
        if page.may("operate"):
            table.row_actions(partial(_verbs, page, table))
        await table.load()


def _verbs(page: Page, table: ServerTable, entry: Entry) -> dict[str, Verb]:
    """An outcome that was decided can be forgotten, and nothing else."""
    verbs = {"Forget": "forget"} if entry["outcome"] else {"Commit": "commit", "Roll back": "rollback"}
    return {verb: partial(_decide, page, table, outcome) for verb, outcome in verbs.items()}


async def _decide(page: Page, table: ServerTable, outcome: str, entry: Entry) -> None:
    path = path_of("xa", entry["xid"])
    texts = {
        "commit": ("Commit", "Its messages are sent and its acknowledgements take effect, whatever its transaction "
                             "manager decides later."),
        "rollback": ("Roll back", "Its work is undone, whatever its transaction manager decides later."),
        "forget": ("Forget", "The broker forgets the decision: its transaction manager gets no answer about it."),
    }  # fmt: skip
    verb, text = texts[outcome]
    if await confirm(f"{verb} transaction {shown.text(entry['xid'], 80)}", text, verb):
        call = ("DELETE", path) if outcome == "forget" else ("POST", f"{path}/{outcome}")
        if await page.attempt(page.caller.call(*call)) is not None:
            ui.notify(f"{verb}: done", type="positive")
            await table.reload()
