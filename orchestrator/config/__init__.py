"""Where option values come from, and what a server entry means."""
