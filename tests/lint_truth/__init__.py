"""Whether the lint agrees with providers: on requests that were recorded, and on what is broken on purpose.

`make lint-truth` runs it on the recorded requests beside the project, which are not in it.
"""
