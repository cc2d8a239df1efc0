"""The rules of diagnosis, a module for each subject. `registry.rules` is the list of all."""
