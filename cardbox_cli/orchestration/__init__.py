"""Orchestration: an agent delegates work to other agents and gets their results."""
