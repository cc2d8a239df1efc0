"""`python -m cardbox_cli` is `cbx`."""

from cardbox_cli.entry import script

script()
