"""Mended boxes: repaired, compressed, expanded. Each is a new one; its parent is the box it was made of."""
