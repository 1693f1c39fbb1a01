"""What text is made of: sentences, Markdown, addresses."""
