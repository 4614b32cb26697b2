"""The inner loops of the models and acquisition functions, over NumPy arrays and compiled by Numba.

Without Numba, their callers use implementations in torch. No module of this package imports torch, so that a process
that only compiles starts fast. A loop allocates no arrays; its caller passes arrays for inputs, results and scratch
memory, all of them in C order, because Numba would compile the loop again for another layout.

Most loops avoid constructs that are slow to compile: slices, `min` and `max`, indices into `shape`, assignments to
whole arrays, and assignments that build a tuple. An assignment to a whole array is slow to compile because it can raise
an error, and the error message needs Numba's support for strings. An assignment builds a tuple if it has four or more
values, or constants as in `a, b = 0.0, 0.0`.
"""
