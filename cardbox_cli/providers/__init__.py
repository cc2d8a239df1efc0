"""Providers' formats: a package for each, what they share, and the registry that finds them by name."""
