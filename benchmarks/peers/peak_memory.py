"""Runs a command, whose output is dropped, and prints how many MB of memory it had at most.

Of a process of its own: what a child is told to have had at most counts what its parent had when it started.
"""

import resource
import subprocess
import sys

code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
# Kilobytes on Linux, bytes on macOS.
unit = 1 if sys.platform == "darwin" else 1024
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit / 1e6)
sys.exit(code)
