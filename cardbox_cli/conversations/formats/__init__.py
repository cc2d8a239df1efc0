"""Formats of conversation files other than providers' messages, one module each. `registry` lists them."""
