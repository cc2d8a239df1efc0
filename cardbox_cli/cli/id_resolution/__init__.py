"""The stores of a command line: they resolve ids as people type them, `@last` among them."""
