"""Tasks: what the human writes down about a kernel, read strictly."""
