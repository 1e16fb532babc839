"""What Alembic runs around the revisions: it gets a connection that is in a transaction already."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
