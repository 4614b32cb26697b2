"""Which action to take in a state: from a belief to a function of states."""
