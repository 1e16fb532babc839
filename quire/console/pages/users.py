"""Users, access rules and tokens: who may do what, and why."""

from functools import partial
from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.detail import FormDialog
from quire.console.elements import Field, Form, block, button, confirm, notice, say
from quire.console.page import Page
from quire.console.session import path_of
from quire.console.tables import Column, Entry, LocalTable, Verb, columns_of
from quire.resources import RuleStatus, TokenStatus, UserStatus

ROLES = "administrator, operator, monitor; with spaces between"
HOUR = 3600


class _List(LocalTable):
    """A list of the API that has all its entries in one answer."""

    def __init__(self, page: Page, key: str, columns: list[Column], empty: str, identity: str) -> None:
        self._page, self._key = page, key
        super().__init__(columns, empty, identity)

    async def load(self) -> None:
        self.show((await self._page.get(f"/{self._key}"))[self._key])

    async def reload(self, _answer: object = None) -> None:
        await self._page.attempt(self.load())

    async def remove(self, noun: str, text: str, verb: str, entry: Entry) -> None:
        name = str(entry.get("name") or entry["id"])
        if not await confirm(f"{verb} {noun} {shown.text(name, 60)}", text, f"{verb} {noun}"):
            return
        if await self._page.attempt(self._page.caller.call("DELETE", path_of(self._key, name))) is not None:
            await self.reload()


def _roles(roles: list[str] | None) -> str:
    return "the user's" if roles is None else shown.text(", ".join(roles) or shown.UNKNOWN)


async def build_users(page: Page) -> None:
    columns = [
        *columns_of(UserStatus),
        Column("login", "Logs in with", _login, is_text=True),
        Column("disabled", "State", lambda user: "disabled" if user["disabled"] else "active", is_text=True,
               tone=lambda user: "warn" if user["disabled"] else "good"),
        Column("origin", "Made in", lambda user: "settings" if user["in_file"] else "running broker", is_text=True),
    ]  # fmt: skip
    fields = [
        Field("name", "User", is_required=True),
        Field("password", "Password", "password"),
        Field("roles", "Roles", "words", ROLES),
    ]
    with page.frame("Users", "users") as head:
        if not page.caller.who.get("secured"):
            notice("The broker has no users:", "who reaches it may do everything. The first user ends that.", "warn")
        users = _List(page, "users", columns, "No user.", "name")

        async def add(form: Form) -> dict[str, Any]:
            return await page.caller.call("POST", "/users", form.body())

        with head:
            button("New user", "add", lambda: FormDialog(page, "New user", "Add user", fields, add, users.reload))
        users.row_actions(partial(_user_verbs, page, users))
        await users.load()


def _user_verbs(page: Page, users: _List, user: Entry) -> dict[str, Verb]:
    """What is in the settings file is changed there."""
    if user["in_file"]:
        return {}
    text = "The user's connections are closed, and its tokens end."
    return {
        "Roles": partial(_change_roles, page, users),
        "Password": partial(_change_password, page, users),
        "Enable" if user["disabled"] else "Disable": partial(_switch, page, users),
        "Remove": partial(users.remove, "user", text, "Remove"),
    }


def _login(user: Entry) -> str:
    ways = ["a password"] * user["has_password"] + ["a certificate"] * bool(user["certificates"])
    return ", ".join(ways) or "nothing yet"


async def _change_roles(page: Page, users: _List, user: Entry) -> None:
    async def send(form: Form) -> dict[str, Any]:
        body = {"roles": str(form.value("roles") or "").split()}
        return await page.caller.call("PUT", path_of("users", user["name"]), body)

    fields = [Field("roles", "Roles", hint=ROLES, value=" ".join(user["roles"]))]
    FormDialog(page, f"Roles of {shown.text(user['name'], 60)}", "Set roles", fields, send, users.reload)


async def _change_password(page: Page, users: _List, user: Entry) -> None:
    async def send(form: Form) -> dict[str, Any]:
        return await page.caller.call("PUT", path_of("users", user["name"], "password"), form.body())

    fields = [Field("password", "New password", "password", is_required=True)]
    FormDialog(page, f"Password of {shown.text(user['name'], 60)}", "Set password", fields, send, users.reload)


async def _switch(page: Page, users: _List, user: Entry) -> None:
    verb = "Enable" if user["disabled"] else "Disable"
    text = "The user may log in again." if user["disabled"] else "The user's connections are closed."
    if await confirm(f"{verb} user {shown.text(user['name'], 60)}", text, f"{verb} user"):
        body = {"disabled": not user["disabled"]}
        await page.attempt(page.caller.call("PUT", path_of("users", user["name"]), body))
        await users.reload()


async def build_rules(page: Page) -> None:
    effect = Column("effect", "Effect", lambda rule: rule["effect"], is_text=True,
                    tone=lambda rule: "good" if rule["effect"] == "allow" else "bad")  # fmt: skip
    columns = columns_of(RuleStatus, own={"effect": effect})
    fields = [
        Field("subject", "Who", hint="user:NAME, role:NAME or *", is_required=True),
        Field("effect", "Effect", "choice", choices=("allow", "deny"), value="allow"),
        Field("actions", "May", "words", "read write create manage", value="read write", is_required=True),
        Field("destination", "Destinations", hint="queue://orders.>, topic://prices.*, or >", is_required=True),
    ]
    with page.frame("Rules", "rules") as head:
        say("No rule that matches means no. A deny wins over any allow, in any order.", classes="mute")
        _RuleCheck(page)
        rules = _List(page, "rules", columns, "No rule.", "id")

        async def add(form: Form) -> dict[str, Any]:
            body = form.body()
            return await page.caller.call("POST", "/rules", {
                "subject": body["subject"], "destination": body["destination"], body["effect"]: body["actions"],
            })  # fmt: skip

        with head:
            button("New rule", "add", lambda: FormDialog(page, "New rule", "Add rule", fields, add, rules.reload))
        text = "What it allowed is no longer allowed, what it denied no longer denied, at once."
        remove = {"Remove": partial(rules.remove, "rule", text, "Remove")}
        rules.row_actions(lambda rule: remove if rule["origin"] == "runtime" else {})
        await rules.load()


class _RuleCheck:
    def __init__(self, page: Page) -> None:
        self._page = page
        with block("card"):
            say("May a user do something, and why?", "h2")
            with block("toolbar"):
                self._user = ui.input(placeholder="User").props('dense outlined aria-label="User"')
                self._action = ui.select(["read", "write", "create", "manage"], value="read")
                self._action.props('dense outlined options-dense aria-label="Action"')
                self._destination = ui.input(placeholder="Destination: queue://orders")
                self._destination.props('dense outlined aria-label="Destination"').on("keydown.enter", self._check)
                button("Check", "rule", self._check)
            self._told = block("").style("margin-top: 10px").props('aria-live="polite"')

    async def _check(self) -> None:
        query = {"user": self._user.value or "", "action": self._action.value, "destination": self._destination.value}
        verdict = await self._page.attempt(self._page.get("/rules/check", **query))
        if verdict is None:
            return
        self._told.clear()
        with self._told:
            more = " ".join(filter(None, [verdict["reason"], verdict["hint"]]))
            notice(shown.text(verdict["text"], 500), shown.text(more, 500), "" if verdict["allowed"] else "bad")


async def build_tokens(page: Page) -> None:
    roles = Column("roles", "Roles", lambda token: _roles(token["roles"]), is_text=True)
    columns = columns_of(TokenStatus, own={"roles": roles})
    fields = [
        Field("owner", "User", hint="Empty: yourself"),
        Field("text", "For", hint="What the token is for"),
        Field("hours", "Hours", "number", "How long it lives", value=24, is_required=True),
        Field("roles", "Roles", "words", "Empty: all roles of the user"),
    ]
    with page.frame("Tokens", "tokens") as head:
        tokens = _List(page, "tokens", columns, "No token.", "id")

        async def make(form: Form) -> dict[str, Any]:
            body = form.body()
            body["expires_in"] = body.pop("hours") * HOUR
            return await page.caller.call("POST", "/tokens", body)

        async def made(answer: dict[str, Any]) -> None:
            _show_secret(answer["secret"])
            await tokens.reload()

        with head:
            button("New token", "add", lambda: FormDialog(page, "New token", "Make token", fields, make, made))
        text = "Connections that logged in with it are closed."
        tokens.row_actions(lambda token: {"Revoke": partial(tokens.remove, "token", text, "Revoke")})
        await tokens.load()


def _show_secret(secret: str) -> None:
    """The one time that it is seen."""
    with ui.dialog() as dialog, ui.card().classes("dialog"):
        say("The new token", "h2")
        say("Copy it now: it is not shown again.", classes="mute")
        say(secret, "pre", "content mono")
        with block("end"):
            ui.button("Done", on_click=dialog.close).props("unelevated color=primary")
    dialog.on("hide", dialog.delete)
    dialog.open()
