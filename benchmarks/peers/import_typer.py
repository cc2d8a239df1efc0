"""The floor of every command that only starts and prints: its command-line library, with nothing done."""

import typer  # noqa: F401  # importing it is all that is measured
