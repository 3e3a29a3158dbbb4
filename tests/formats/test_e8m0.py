"""Exponent bytes."""

from __future__ import annotations

import numpy as np
import pytest

from degarble.formats import e8m0

EVERY = np.arange(256, dtype=np.uint8)


def test_every_byte_survives() -> None:
    assert np.array_equal(e8m0.encode(e8m0.decode(EVERY)), EVERY)


def test_values() -> None:
    assert e8m0.decode(np.array([0, 127, 128, 254], np.uint8)).tolist() == [2**-127, 1, 2, 2**127]
    assert np.isnan(e8m0.decode(np.array([255], np.uint8)))[0]


def test_scales_are_rounded_down() -> None:
    assert e8m0.encode(np.array([1.99, 3.0, 2**-130], np.float32)).tolist() == [127, 128, 0]


@pytest.mark.parametrize("scale", [0.0, -1.0, np.inf])
def test_what_has_no_byte_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="positive finite"):
        e8m0.encode(np.array([scale], np.float32))


@pytest.mark.engine
def test_torch_agrees() -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.from_numpy(EVERY.copy()).view(torch.float8_e8m0fnu).float().numpy()
    np.testing.assert_array_equal(e8m0.decode(EVERY), theirs)


@pytest.mark.engine
def test_compressed_tensors_agrees() -> None:
    torch = pytest.importorskip("torch")
    utils = pytest.importorskip("compressed_tensors.compressors.mx_utils")
    ours = e8m0.decode(EVERY[:255])
    np.testing.assert_array_equal(ours, utils.decompress_mx_scale(torch.from_numpy(EVERY[:255].copy())).float().numpy())
    normal = torch.from_numpy(ours[1:] * np.float32(1.5))[:253]
    theirs = utils.compress_mx_scale(normal, torch.uint8).numpy()
    assert np.array_equal(e8m0.encode(normal.numpy()), theirs)
