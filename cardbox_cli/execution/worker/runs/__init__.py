"""A run of a turn or a chat: its loop, the ledger that it stands on, and what each step reads and writes."""
