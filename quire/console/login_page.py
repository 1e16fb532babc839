"""Pages without NiceGUI: they cost the server nothing, whichever client asks for them."""

from html import escape

ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E"
    "%3Crect width='32' height='32' rx='7' fill='%230b6b7d'/%3E"
    "%3Cpath d='M9 8h10l4 4v12H9z' fill='%23fff'/%3E"
    "%3Cpath d='M12 15h8M12 19h8' stroke='%230b6b7d' stroke-width='2'/%3E%3C/svg%3E"
)
"""The picture of the browser's tab: a page."""

STYLE = """
:root { color-scheme: light dark; --bg: #f6f7f9; --card: #fff; --line: #dfe3e8; --text: #1c2430; --mute: #5c6878;
  --accent: #0b6b7d; --on: #fff; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --bg: #0f1317; --card: #171c22; --line: #2a323c; --text: #e4e9ef;
  --mute: #93a0b0; --accent: #58b8c9; --on: #08262c; --bad: #f2837b; } }
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; background: var(--bg); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
main { width: min(360px, calc(100vw - 32px)); padding: 28px; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; overflow-wrap: anywhere; }
h1 { margin: 0 0 2px; font-size: 20px; font-weight: 650; letter-spacing: -.01em; }
p { margin: 0 0 18px; color: var(--mute); }
label { display: block; margin: 14px 0 4px; font-weight: 550; }
input { width: 100%; padding: 9px 11px; font: inherit; color: inherit; background: var(--bg);
  border: 1px solid var(--line); border-radius: 6px; }
input:focus-visible, button:focus-visible, a:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
button { width: 100%; margin-top: 20px; padding: 10px; font: inherit; font-weight: 600; color: var(--on);
  background: var(--accent); border: 0; border-radius: 6px; cursor: pointer; }
a { color: var(--accent); }
.error { color: var(--bad); margin: 14px 0 0; }
"""


def login_page(broker: str, target: str, error: str | None = None) -> bytes:
    """The form to log in to a broker, which then goes on to the page that was asked for."""
    told = f'<p class="error" role="alert">{escape(error)}</p>' if error else ""
    return _page(
        "Log in",
        f"<h1>Quire</h1><p>Log in to the broker at {escape(broker)}.</p>"
        f'<form method="post" action="/login"><input type="hidden" name="broker" value="{escape(broker)}">'
        f'<input type="hidden" name="next" value="{escape(target)}">'
        '<label for="user">User</label>'
        '<input id="user" name="user" autocomplete="username" autocapitalize="none" required autofocus>'
        '<label for="password">Password</label>'
        '<input id="password" name="password" type="password" autocomplete="current-password" required>'
        f"{told}<button>Log in</button></form>",
    )


def notice_page(title: str, text: str, reload_seconds: int | None = None) -> bytes:
    """A page that says one thing, and may try again by itself."""
    head = f'<meta http-equiv="refresh" content="{reload_seconds}">' if reload_seconds else ""
    return _page(title, f"<h1>{escape(title)}</h1><p>{escape(text)}</p>", head)


def _page(title: str, content: str, head: str = "") -> bytes:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)} · Quire</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{head}<link rel="icon" href="{ICON}">'
        f"<style>{STYLE}</style></head>"
        f"<body><main>{content}</main></body></html>"
    ).encode()
