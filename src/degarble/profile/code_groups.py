"""Codes of a batch of modules, in their groups: [modules, outputs, groups, codes of a group]."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.formats.agreement import bits_of, shape_of
from degarble.formats.interface import PAYLOAD, StoredModule
from degarble.formats.packing import WORD_BITS, unpack_words
from degarble.formats.slicing import GROUP_INDEX, group_size

READ_BLOCKS = frozenset({"Q4_0", "Q8_0"})
"""GGUF types whose codes `StoredModule.codes` gives."""


class CodeGroups(msgspec.Struct, frozen=True):
    """What a group-wise integer quantiser wrote."""

    num_bits: int
    codes: Array
    """[modules, outputs, groups, group] uint8, counted from 0"""
    zeros: Array | None
    """[modules, outputs, groups] float32; None: the middle of the range"""
    scales: Array
    """[modules, outputs, groups] float32"""
    words: Array | None
    """[modules, words, codes of a word], in the order in which they are stored"""

    def values(self) -> Array:
        """[modules, outputs, in] float32, groups in order."""
        values = _dequantized(self.codes, self._zeros(), self.scales[..., None])
        return values.reshape(*values.shape[:2], -1)

    def columns(self) -> Array:
        """The same for one module with inputs as rows, [in, outputs]; codes are turned while they are bytes."""
        codes = np.ascontiguousarray(self.codes[0].transpose(1, 2, 0))  # [groups, group, outputs]
        zeros = self._zeros()
        turned = zeros if isinstance(zeros, np.float32) else zeros[0].transpose(1, 2, 0)
        scales = np.ascontiguousarray(self.scales[0].T)
        return _dequantized(codes, turned, scales[:, None]).reshape(-1, codes.shape[2])

    def _zeros(self) -> Array | np.float32:
        """One number where all are equal, by which numpy subtracts twice as fast."""
        if self.zeros is None or not self.zeros.size:
            return np.float32(1 << (self.num_bits - 1))
        return self.zeros[..., None] if has_zeros(self.zeros) else np.float32(self.zeros.flat[0])


def _dequantized(codes: Array, zeros: Array | np.float32, scales: Array) -> Array:
    values = codes.astype(np.float32)
    values -= zeros
    with np.errstate(invalid="ignore", over="ignore"):
        values *= scales
    return values


def code_groups(modules: Sequence[StoredModule], stacked: StoredModule) -> CodeGroups | None:
    """The codes of `stacked`, the outputs of all modules; None for other than integer formats."""
    scheme = stacked.form.scheme
    if scheme is None or scheme.type != "int" or scheme.num_bits is None:
        return None
    if stacked.form.format == "gguf" and scheme.format not in READ_BLOCKS:
        return None
    size = min(group_size(stacked), shape_of(stacked)[-1])
    codes, num_bits, is_signed = codes_from_zero(stacked)
    codes = codes.reshape(len(modules), -1, codes.shape[-1])
    words = _words(stacked, codes)
    ordered = in_order(modules, codes)
    if ordered is None:
        return None
    groups = ordered.shape[2] // size
    codes = ordered[:, :, : groups * size].reshape(*ordered.shape[:2], groups, size)
    return CodeGroups(
        num_bits=num_bits,
        codes=codes,
        zeros=zeros_by_group(stacked, codes.shape[:3], num_bits if is_signed else None),
        scales=scales_by_group(stacked, codes.shape[:3]),
        words=words,
    )


def values_of(module: StoredModule) -> Array:
    """[out, in] float32, as `dequantize` gives; group by group where groups are regular, which is far faster."""
    groups = _regular(module)
    values = module.dequantize() if groups is None else groups.values()[0]
    return np.asarray(values, np.float32)


def columns_of(module: StoredModule) -> Array:
    """`values_of` with inputs as rows, [in, out]."""
    groups = _regular(module)
    values = module.dequantize().T if groups is None else groups.columns()
    return np.ascontiguousarray(values, np.float32)


def _regular(module: StoredModule) -> CodeGroups | None:
    has_groups = module.part(GROUP_INDEX) is None and shape_of(module)[-1] % max(1, group_size(module)) == 0
    return code_groups([module], module) if has_groups else None


def has_zeros(zeros: Array | None) -> bool:
    """Whether zero points differ; else the range is symmetric around one."""
    return zeros is not None and bool((zeros != zeros.flat[0]).any())


def codes_from_zero(stacked: StoredModule) -> tuple[Array, int, bool]:
    """uint8 codes counted from 0, their width, and whether they were signed and therefore shifted up."""
    codes, num_bits = stacked.codes(), bits_of(stacked)
    if codes.dtype != np.int8:
        return codes, num_bits, False
    if num_bits == 8:
        return np.ascontiguousarray(codes).view(np.uint8) ^ np.uint8(0x80), num_bits, True
    middle = np.int16(1 << (num_bits - 1))
    shifted = codes.astype(np.int16) + middle
    if shifted.size and not 0 <= int(shifted.min()) <= int(shifted.max()) < 1 << num_bits:
        raise ValueError(f"{stacked.name}: codes {codes.min()}..{codes.max()} exceed {num_bits} bits")
    return shifted.astype(np.uint8), num_bits, True


def in_order(modules: Sequence[StoredModule], codes: Array) -> Array | None:
    """[modules, outputs, in] with inputs sorted by group; None where a group index gives groups of unequal sizes."""
    if modules[0].part(GROUP_INDEX) is None:
        return codes
    size = min(group_size(modules[0]), shape_of(modules[0])[-1])
    plain = np.arange(codes.shape[2]) // size
    sorted_codes = []
    for module, own in zip(modules, codes, strict=True):
        index = module.array(GROUP_INDEX)
        if index.shape != plain.shape:
            return None
        if (index == plain).all():
            sorted_codes.append(own)
            continue
        order = np.argsort(index, kind="stable")
        if (index[order] != plain).any():
            return None
        sorted_codes.append(own[:, order])
    return np.stack(sorted_codes)


def scales_by_group(stacked: StoredModule, shape: tuple[int, ...]) -> Array:
    """float32 scales of `shape`, [modules, outputs, groups]."""
    return _by_group(stacked.scales(), shape)


def zeros_by_group(stacked: StoredModule, shape: tuple[int, ...], signed_bits: int | None) -> Array | None:
    """Zero points in units of codes from 0; an offset in units of weights is turned into one."""
    if stacked.part("offset") is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            offsets = stacked.array("offset").astype(np.float32)
            return _by_group(np.nan_to_num(-offsets / stacked.scales()), shape)
    zeros = stacked.zeros()
    if zeros is None:
        return None
    wide = _by_group(zeros, shape)
    return wide if signed_bits is None else wide + np.float32(1 << (signed_bits - 1))


def _by_group(values: Array, shape: tuple[int, ...]) -> Array:
    """[modules * outputs, groups or 1] -> [modules, outputs, groups] float32."""
    wide = values.astype(np.float32).reshape(*shape[:2], -1)
    if wide.shape[2] < shape[2] and wide.shape[2] != 1:
        raise ValueError(f"{wide.shape[2]} scales for {shape[2]} groups")
    return np.broadcast_to(wide[:, :, : shape[2]], shape)


def _words(stacked: StoredModule, codes: Array) -> Array | None:
    """Codes by the words in which they are packed; None where they are not, or straddle words."""
    payload, num_bits = stacked.payload, bits_of(stacked)
    if payload is None or payload.dtype not in ("I32", "U32") or WORD_BITS % num_bits or num_bits == 8:
        return None
    per_word = WORD_BITS // num_bits
    along = stacked.format.axes[PAYLOAD][1]
    if along is not None and along[1] != 1:  # packed along the inputs
        return codes.reshape(len(codes), -1, per_word) if codes.shape[2] % per_word == 0 else None
    stored = np.ascontiguousarray(stacked.array(PAYLOAD).T)  # [words along the outputs, in]
    return unpack_words(stored, num_bits, stored.shape[1] * per_word).reshape(len(codes), -1, per_word)
