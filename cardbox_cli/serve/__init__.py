"""Cards, boxes and turns, to be read: over HTTP by programs and people, over MCP by agents."""
