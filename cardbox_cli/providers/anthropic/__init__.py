"""Anthropic's Messages: system text apart, content in blocks, neighbours of one role merged."""
