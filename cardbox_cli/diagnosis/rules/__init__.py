"""The rules of diagnosis, one module for each subject. `registry.rules` lists them all."""
