"""The inner loops of the models and acquisition functions, over NumPy arrays and compiled by Numba.

Without Numba these loops are not used: their callers have implementations in torch. No module of this package imports
torch, so that a process that only compiles starts fast. Constructs that are expensive to compile are avoided:
whole-array assignments (their error message alone compiles Numba's string support), tuples of arrays, `min` and `max`,
and helpers with more than one caller. A loop allocates no arrays; its caller passes the arrays for inputs, results and
scratch memory.
"""
