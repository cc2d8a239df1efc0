"""Formats of conversation files that are no provider's messages: one module for each, found in `registry`."""
