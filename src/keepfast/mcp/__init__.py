"""Driving a run from outside: `keepfast mcp` for an agent that somebody sits before, `keepfast try` for whoever edits by hand.

Owns the way in (the ledger's inbox), the way out (its events and experiments), and the tools of the MCP server. Everything is judged by
the run that is going on, in its walls and on its budget. Must not know the judge.
"""
