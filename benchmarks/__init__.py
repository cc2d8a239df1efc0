"""What `make bench` and `make scale` run: cbx against a floor, a peer or itself, side by side.

A module for each family of rows, whose `ROWS` say what is compared and what the target is; `scale` stands
alone. No part of the wheel.
"""
