"""The wire below upstream.py: frames, faults, and the mending of what an SDK would refuse."""
