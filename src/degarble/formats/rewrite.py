"""New values into the dtype and shape in which a module stores them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from degarble.checkpoint.tensor_data import DTYPES, Array
from degarble.formats.interface import StoredModule


def rewrite(module: StoredModule, new: Mapping[str, Array]) -> dict[str, Array]:
    """role -> values becomes full tensor name -> stored array.

    Bytes for an 8-bit float dtype are taken as its codes. Raises ValueError for a role that the module does not store,
    a wrong number of values, or a finite value that the stored dtype would turn into infinity or NaN.
    """
    stored: dict[str, Array] = {}
    for role, values in new.items():
        info = module.part(role)
        if info is None:
            raise ValueError(f"{module.name}: stores no {role} that could be replaced")
        dtype = DTYPES[info.dtype]
        if dtype.itemsize == 1 and values.dtype == np.uint8 and dtype != np.uint8:
            cast = np.ascontiguousarray(values).view(dtype)
        else:
            cast = _cast(values, dtype, info.name)
        if cast.size != int(np.prod(info.shape, dtype=object)):
            raise ValueError(f"{info.name}: {list(values.shape)} does not fit into {list(info.shape)}")
        stored[info.name] = np.ascontiguousarray(cast).reshape(info.shape)
    return stored


def _cast(values: Array, dtype: np.dtype[np.generic], name: str) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        cast = np.asarray(values).astype(dtype)
        if np.issubdtype(values.dtype, np.floating):
            back = cast.astype(np.float64)
            if bool((np.isfinite(values) & ~np.isfinite(back)).any()):
                raise ValueError(f"{name}: a value is too large for {dtype.name}")
    return cast
