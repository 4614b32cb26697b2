"""The inner loops, on NumPy arrays: compiled if Numba is installed, and not used otherwise.

Nothing here knows torch, so that a process that only compiles starts fast. Constructs that are expensive to compile
are avoided: whole-array assignments (their error message alone compiles Numba's string support), tuples of arrays,
`min` and `max`, and helpers with more than one caller.  No loop allocates arrays; callers pass all memory it needs.
"""
