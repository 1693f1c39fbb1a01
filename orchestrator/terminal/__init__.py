"""The commands behind cli.py: arguments, help, what is shown."""
