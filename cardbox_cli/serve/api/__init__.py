"""The read API. Its JSON is that of `-o json`, if there is a command for it."""
