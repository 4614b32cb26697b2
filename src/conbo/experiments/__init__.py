"""Experiments that compare methods on problems: resumable runs, their summaries, and the figures of the ConBO paper."""
