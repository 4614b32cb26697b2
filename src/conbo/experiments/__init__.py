"""Experiments that compare methods on problems: resumable runs, their summary, and the paper's figures."""
