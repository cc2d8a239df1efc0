"""Addresses in texts of other programs, as they can be shown: without the user and the password."""

import re

_CREDENTIALS = re.compile(r"(?<=://)[^\s\"]*@")


def without_credentials(text: str) -> str:
    """`text` with `…@` for who somebody is to a server: an address may stand where only a name should."""
    return _CREDENTIALS.sub("…@", text)
