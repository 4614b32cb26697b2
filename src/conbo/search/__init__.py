"""Pools of actions from which searches start, and actions that are likely to be the best in a state."""
