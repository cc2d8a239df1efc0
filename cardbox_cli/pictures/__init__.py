"""Pictures of contexts: self-contained pages and drawings."""
