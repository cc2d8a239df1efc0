"""Read access to cards, boxes and turns: over HTTP for programs and people, over MCP for agents."""
