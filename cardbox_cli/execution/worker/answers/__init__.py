"""What the commands of a step and of its tools printed, as cards, and how their failures are told."""
