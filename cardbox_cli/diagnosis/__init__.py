"""Diagnosis of turns: one verdict, from one snapshot, by one registry of rules."""
