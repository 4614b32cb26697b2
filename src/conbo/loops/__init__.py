"""The inner loops of the models and acquisition functions, over NumPy arrays and compiled by Numba.

Without Numba, their callers use implementations in torch. No module of this package imports torch, so that a process
that only compiles starts fast. A loop allocates no arrays; its caller passes arrays for inputs, results and scratch
memory, all of them in C order, because another layout would be compiled anew.

Constructs that are slow to compile are avoided: whole-array assignments (their error message alone compiles Numba's
string support), slices, `min` and `max`, entries of `shape` by index, and assignments that build a tuple, which those
of four or more values or of constants (`a, b = 0.0, 0.0`) do.
"""
