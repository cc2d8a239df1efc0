"""The read API: a module for each kind of thing. Where a command has an answer, it is that of `-o json`."""
