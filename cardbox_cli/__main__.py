"""`python -m cardbox_cli` is `cbx`."""

from cardbox_cli.cli.main import script

script()
