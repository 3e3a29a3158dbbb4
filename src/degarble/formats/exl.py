"""ExLlama's EXL2 and EXL3: recognised and held to their headers; their values are not read.

EXL2, rows sorted by importance and packed with 2 to 8 bits each:

    q_weight     I32  [packed rows, out]        q_groups     I16  [2 * groups]      (bits, first row) of each group
    q_scale      I32  [groups, out / 8]         q_scale_max  F16  [groups]
    q_invperm    I32 | I16  [in]                q_perm       …    [in], derivable

EXL3, trellis codes in tiles of 16 x 16 after a Hadamard rotation with sign vectors:

    trellis  I16  [in / 16, out / 16, 16 * bits]     suh  F16  [in]     svh  F16  [out]
    su, sv   I16  [in / 16], [out / 16]              packed signs of old files, instead of suh and svh
    mcg | mul1    which codebook

Sources: exllamav2 `linear.py`, exllamav3 `modules/quant/exl3.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.tensor_data import Array
from degarble.formats.agreement import declared_against_stored, shape_contradiction
from degarble.formats.interface import PAYLOAD, Contradiction, Form, Parts, StoredModule, WeightFormat
from degarble.formats.scheme import Scheme

TILE = 16


class Exl2(WeightFormat):
    """EXL2: headers only."""

    name: ClassVar[str] = "exl2"
    roles: ClassVar[Mapping[str, str]] = {
        "q_weight": PAYLOAD,
        "q_scale": "scale",
        "q_scale_max": "scale_max",
        "q_groups": "groups",
        "q_group_map": "group_map",
        "q_invperm": "inverse_permutation",
        "q_perm": "permutation",
        "bias": "bias",
    }
    needed: ClassVar[tuple[str, ...]] = ("scale", "scale_max", "groups", "inverse_permutation")

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """The name `q_weight` is EXL2's alone."""
        return 0 if "q_weight" not in parts else 3 if len(parts) > 1 else 2

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form. Rows have different widths, so the scheme says none."""
        by_role = self.by_role(parts)
        payload, order = by_role[PAYLOAD], by_role.get("inverse_permutation")
        is_known = len(payload.shape) == 2 and order is not None and len(order.shape) == 1
        scheme = Scheme(method="exl2", type="int", strategy="group")
        return Form(
            format=self.name,
            scheme=scheme,
            shape=(payload.shape[1], order.shape[0]) if is_known and order is not None else None,
            roles=self.role_suffixes(parts),
            missing=tuple(role for role in self.needed if role not in by_role),
            contradictions=tuple(self._contradictions(by_role, declared, scheme)),
        )

    def _contradictions(
        self, by_role: Mapping[str, TensorInfo], declared: Scheme | None, scheme: Scheme
    ) -> Iterator[Contradiction]:
        yield from declared_against_stored(declared, scheme, methods=frozenset({"exl2"}))
        scale, largest = by_role.get("scale"), by_role.get("scale_max")
        if len(by_role[PAYLOAD].shape) != 2:
            yield shape_contradiction("shape", PAYLOAD, "a matrix [packed rows, out]", by_role[PAYLOAD])
        if scale is not None and largest is not None and scale.shape[:1] != largest.shape[:1]:
            yield shape_contradiction("group_size", "scale_max", f"{list(scale.shape[:1])}, one per group", largest)

    def codes(self, module: StoredModule) -> Array:
        """Not read."""
        raise ValueError(f"{module.name}: EXL2 values are not read, only headers are checked")

    scales = codes
    dequantize = codes


class Exl3(WeightFormat):
    """EXL3: headers only."""

    name: ClassVar[str] = "exl3"
    roles: ClassVar[Mapping[str, str]] = {
        "trellis": PAYLOAD,
        "suh": "input_signs",
        "su": "input_signs",
        "svh": "output_signs",
        "sv": "output_signs",
        "mcg": "codebook",
        "mul1": "codebook",
        "bias": "bias",
    }
    missing_names: ClassVar[Mapping[str, str]] = {"input_signs": "suh", "output_signs": "svh"}

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """The name `trellis` is EXL3's alone."""
        return 0 if "trellis" not in parts else 3 if len(parts) > 1 else 2

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form. Half-integer widths exist; the scheme then says none."""
        by_role = self.by_role(parts)
        shape = by_role[PAYLOAD].shape
        is_known = len(shape) == 3 and min(shape) > 0
        whole = is_known and shape[2] % TILE == 0
        scheme = Scheme(method="exl3", type="codebook", strategy="tensor", num_bits=shape[2] // TILE if whole else None)
        return Form(
            format=self.name,
            scheme=scheme,
            shape=(shape[1] * TILE, shape[0] * TILE) if is_known else None,
            roles=self.role_suffixes(parts),
            missing=tuple(role for role in ("input_signs", "output_signs") if role not in by_role),
            contradictions=tuple(self._contradictions(parts, is_known)),
        )

    def _contradictions(self, parts: Parts, is_known: bool) -> Iterator[Contradiction]:
        """The config's width is an average and no promise about one module, so it is not compared."""
        payload = parts["trellis"]
        if not is_known:
            yield shape_contradiction("shape", PAYLOAD, "[in / 16, out / 16, 16 * bits]", payload)
            return
        for suffix, tiles, size in (("suh", 0, TILE), ("svh", 1, TILE), ("su", 0, 1), ("sv", 1, 1)):
            want = (payload.shape[tiles] * size,)
            if suffix in parts and parts[suffix].shape != want:
                yield shape_contradiction("shape", self.roles[suffix], f"{list(want)}", parts[suffix])

    def codes(self, module: StoredModule) -> Array:
        """Not read."""
        raise ValueError(f"{module.name}: EXL3 values are not read, only headers are checked")

    scales = codes
    dequantize = codes
