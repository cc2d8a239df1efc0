"""The inspector: pages about one project, rendered here, that change nothing and ask nothing of elsewhere."""
