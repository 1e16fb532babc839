"""Actions: two steps, the effect before the deed, and only what the user may do."""

from nicegui import ui

from tests.unit.console.fake_broker import FakeBroker
from tests.unit.console.rig import Rig, with_rig


async def press(rig: Rig, label: str, *, see: str) -> None:
    await rig.user.should_see(kind=ui.button, content=label)
    rig.user.find(kind=ui.button, content=label).click()
    await rig.user.should_see(see)


def test_a_purge_is_counted_first_and_done_with_the_token_of_that_count() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.user.open("/queue?name=orders")
        rig.choose("Purge…")
        await rig.user.should_see("Purge queue orders")
        await press(rig, "Preview", see="1,204 messages are removed for good; those in flight stay.")
        assert rig.broker.requests[-1] == ("POST", "/queues/orders/purge", {"dry_run": "true"}, {})
        rig.user.find(kind=ui.button, content="Purge 1,204 messages").click()
        await rig.user.should_see("Purge queue orders: 1,204 messages")
        done = [request for request in rig.broker.requests if request[2].get("background")]
        assert done == [("POST", "/queues/orders/purge", {"token": "t-1", "background": "true"}, {})]

    with_rig(scenario)


def test_a_move_needs_a_target_and_keeps_what_was_previewed() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.user.open("/queue?name=orders")
        rig.choose("Move…")
        await press(rig, "Preview", see="Fill in: To")
        assert not rig.broker.asked("POST", "/queues")
        rig.element(ui.input, label="To").value = "archive"
        rig.element(ui.input, label="Selector").value = "priority > 4"
        await press(rig, "Preview", see="1,204 messages move. 1 consumers are disconnected.")
        assert "readonly" in rig.element(ui.input, label="Selector").props
        rig.user.find(kind=ui.button, content="Move 1,204 messages").click()
        await rig.user.should_see("Move messages of queue orders: 1,204 messages")
        assert rig.broker.requests[-2][3] == {"to": "archive", "selector": "priority > 4"}

    with_rig(scenario)


def test_without_rights_the_buttons_are_not_there() -> None:
    async def scenario(rig: Rig) -> None:
        rig.broker.who |= {"permissions": ["monitor"], "may": []}
        await rig.user.open("/queue?name=orders")
        for label in ("Messages", "Send", "Pause", "Resume", "Actions"):
            await rig.user.should_not_see(kind=ui.button, content=label)
        await rig.user.open("/queues")
        await rig.user.should_not_see("New queue")
        for title in ("Users", "Rules"):
            await rig.user.should_not_see(title)
        await rig.user.open("/users")
        await rig.user.should_see("this page is for users who may administer")
        assert not rig.broker.asked("GET", "/users")
        await rig.user.open("/transactions")
        await rig.user.should_not_see("Commit")

    with_rig(scenario)


def test_an_error_of_the_broker_is_told_with_its_advice_and_nothing_is_done() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.user.open("/queue?name=orders")
        rig.choose("Purge…")
        rig.broker.fail(409, "destination-in-use", "queue orders is used <b>now</b>")
        await press(rig, "Preview", see="queue orders is used <b>now</b>. Disconnect its consumers first")
        await rig.user.should_see("Preview")

    with_rig(scenario)


def test_deleting_one_message_is_asked_for_and_names_it() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.user.open("/messages?kind=queue&name=orders")
        table = rig.element(ui.table)
        rig.user.find(kind=ui.table).trigger("verb", {"key": "3", "verb": "Delete"})
        await rig.user.should_see("Delete message 3 of queue orders")
        assert not rig.broker.asked("DELETE", "/")
        rig.user.find(kind=ui.button, content="Delete message").click()
        await rig.user.should_see("The message was deleted")
        assert rig.broker.asked("DELETE", "/") == ["/queues/orders/messages/3"]
        assert table.rows[2]["key"] == "3"

    with_rig(scenario)


def test_a_button_of_a_row_is_for_the_row_that_was_seen() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.user.open("/messages?kind=queue&name=orders")
        rig.user.find(kind=ui.table).trigger("verb", {"key": "999999", "verb": "Delete"})
        rig.user.find(kind=ui.table).trigger("verb", {"key": "3", "verb": "Format the disk"})
        await rig.user.should_not_see("Delete message 3 of queue orders")

    with_rig(scenario)


def test_a_new_token_is_shown_once() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.user.open("/tokens")
        rig.user.find("New token").click()
        await press(rig, "Make token", see="qt_k7Q2_secret")
        assert ("POST", "/tokens", {}, {"expires_in": 86400}) in rig.broker.requests

    with_rig(scenario)


def test_sending_a_message_with_headers() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.user.open("/send?kind=queue&name=orders")
        rig.element(ui.textarea, label="Body").value = "two coffees"
        rig.element(ui.textarea, label="Headers").value = "region: EU\n\nurl: http://x:1"
        rig.user.find(kind=ui.button, content="Send").click()
        await rig.user.should_see("1 sent to queue orders")
        body = {
            "body": "two coffees", "body_encoding": "text", "headers": {"region": "EU", "url": "http://x:1"},
            "priority": 4, "count": 1, "persistent": True,
        }  # fmt: skip
        assert rig.broker.requests[-1] == ("POST", "/queues/orders/messages", {}, body)

    with_rig(scenario)


def test_a_login_that_has_ended_leads_to_the_form() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.log_in("admin", "secret")
        await rig.user.open("/queue?name=orders")
        rig.broker.fail(401, "not-authenticated", "the token has ended")
        rig.choose("Purge…")
        await press(rig, "Preview", see="the token has ended")
        assert (await rig.http.get("/queue?name=orders")).headers["location"].startswith("/login")

    with_rig(scenario, FakeBroker(users={"admin": "secret"}))
