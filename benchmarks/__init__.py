"""What `make bench` runs: cbx against a floor or a peer, each pair measured side by side.

A module for each family of rows, whose `ROWS` say what is compared and what the target is. No part of the
wheel.
"""
