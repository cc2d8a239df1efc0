"""Who uses boxes and cards: the refusal to change what somebody works with."""
