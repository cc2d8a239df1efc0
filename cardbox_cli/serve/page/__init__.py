"""The inspector: read-only, server-rendered pages about one project, without resources from other hosts."""
