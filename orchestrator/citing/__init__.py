"""How an answer cites: markers in every form, reference lists, what each names, and their rewriting."""
