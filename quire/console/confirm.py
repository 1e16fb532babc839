"""A question before something that cannot be undone."""

from nicegui import ui

from quire.console.elements import block, notice, say


async def confirm(title: str, text: str, verb: str) -> bool:
    """Ask; the button has the verb."""
    with ui.context.client, ui.dialog() as dialog, ui.card().classes("dialog"):
        say(title, "h2")
        notice(text, tone="bad")
        with block("end"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat color=grey-7")
            ui.button(verb, on_click=lambda: dialog.submit(True)).props("unelevated color=negative")
    answer = await dialog
    dialog.delete()
    return bool(answer)
