"""The rooms of the MCP server behind gateway.py, and how hosts are told of it."""
