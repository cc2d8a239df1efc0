"""`cbx serve`: what it answers, to whom, and what it shows."""
