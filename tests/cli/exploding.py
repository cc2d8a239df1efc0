"""A command that fails as only a bug can, for the test of what is said then."""

from cardbox_cli.cli.verb import verb


@verb("explode", "cbx explode")
def explode() -> None:
    """Divide by zero."""
    1 / 0  # noqa: B018  # it is the failure that counts
