"""Ask a question, get an answer whose every citation is checked, for no more money than you said."""

__version__ = "0.1.0"
