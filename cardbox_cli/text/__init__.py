"""Formatting of text for all layers: escaping, times, sizes, command lines, errors. No I/O."""
