"""Looking after a store: verify, repair, export, import, compact, backup, restore. ``maintenance`` is the way in."""
