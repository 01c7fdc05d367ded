"""What people and programs read about a run. Reads `model` and `ledger` only; never judges, never writes to the ledger."""
