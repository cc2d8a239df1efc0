"""Tables of a terminal: their layout, which columns are shown, in which order the lines come."""
