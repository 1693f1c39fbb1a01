"""Whether text backs a sentence: numbers, dates, names, negation, direction; and a judge for the rest."""
