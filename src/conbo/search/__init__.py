"""Pools of actions from which searches start, and actions that are likely to be the best one of a state."""
