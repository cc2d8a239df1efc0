"""Pictures of contexts: pages and drawings that need no other file, and ask nothing of the network."""
