"""Orchestration: one agent's work becomes that of others, and comes back together."""
