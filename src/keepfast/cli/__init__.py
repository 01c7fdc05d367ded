"""The command line: one command, one file. Parses words, calls the room that does the work, prints what `report` made of it."""
