"""What stands in a tool result: its records, their texts, and the best passages of them."""
