"""How batches, turns, findings and boxes are told of, by more than one command."""
