"""The inner loops of the models and acquisition functions, over NumPy arrays and compiled by Numba.

Without Numba, their callers use implementations in torch. No module of this package imports torch, so that a process
that only compiles starts fast. Constructs that are slow to compile are avoided: whole-array assignments (their error
message alone compiles Numba's string support), tuples of arrays, `min` and `max`, and helpers with more than one
caller. A loop allocates no arrays; its caller passes arrays for inputs, results and scratch memory.
"""
