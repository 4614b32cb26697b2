"""The inner loops, on NumPy arrays: compiled where Numba is installed, and taken only there.

Nothing here knows torch, so that a process that only compiles starts fast. Constructs that are expensive to compile
are avoided: whole-array assignments (their error message alone brings in Numba's strings), tuples of arrays, `min` and
`max`, helpers with more than one caller, and new arrays: callers pass all memory that is needed.
"""
