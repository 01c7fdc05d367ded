"""The GPU judge and its ends of the three processes it talks to: capture workers, launchers, the oracle."""
