"""What `make bench` and `make scale` run: cbx beside what it is to be compared with, in one run."""
