"""Formatting of text, for all layers: escaping, times and sizes, command lines, errors. Pure."""
