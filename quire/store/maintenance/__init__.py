"""Looking after a store: verify, repair, export, import, compact, backup, restore. ``upkeep`` is the way in."""
