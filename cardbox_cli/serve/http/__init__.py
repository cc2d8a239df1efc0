"""The HTTP side of the server: limits, threads, errors. Knows nothing about the content of responses."""
