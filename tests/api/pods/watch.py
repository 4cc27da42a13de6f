#!/usr/bin/env python3
"""Runs a command, and writes down the most memory in KiB that it, or what it has started, had at once."""
import resource
import subprocess
import sys

code = subprocess.run(sys.argv[1:]).returncode
with open("/run/peak", "w") as peak:
    peak.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code if code >= 0 else 128 - code)
