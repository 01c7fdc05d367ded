"""Languages: what claims a candidate's files and says how they are compiled."""
