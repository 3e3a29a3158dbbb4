"""Loops that numba compiles, for the extra `fast`: attention over pages in place, and what stands between two products.

Everything here has a twin in torch, which is taken where numba is missing. Only `kernels.py` may be imported without it.
"""
