"""The first format. No store is made in it any more: the steps begin here."""

revision = "0001"
down_revision = None
