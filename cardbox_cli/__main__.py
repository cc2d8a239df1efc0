"""`python -m cardbox_cli` is `cbx`."""

import sys

from cardbox_cli.cli.main import main

sys.exit(main())
