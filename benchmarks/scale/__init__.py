"""Whether commands stay as fast on projects a hundred times as large: `python -m benchmarks.scale`."""
