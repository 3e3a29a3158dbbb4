"""A quantisation config where loaders look for it."""

from __future__ import annotations

from typing import Any

from degarble.evidence.declaration import quantization_objects
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job

KEY = "quantization_config"


@repair("write-quantization-config")
def write_quantization_config(job: Job) -> None:
    """Copy the quantisation config from a sidecar into config.json.

    ## What it changes
    `quantization_config` in config.json; the sidecar stays.

    ## Why there is one answer
    The sidecar is the only file that describes the codes, and what it says agrees with the headers: a check of the
    result finds no contradiction.

    ## What it cannot do
    Invent a config. Headers prove bits and group size, but not conventions such as the offset of zero points, so that
    without a sidecar the config is taken from a reference, or fetched.
    """
    files = job.need("json_files")
    found = quantization_objects(files)
    if "config.json" not in files or not found or any(file == "config.json" for file, *_ in found):
        raise job.cannot("no file describes the codes", files=["config.json"])
    file, _, raw, method = found[0]
    if job.evidence.find("declaration") is None:
        raise CannotRepair(f"{file} is not understood")
    value: dict[str, Any] = dict(raw)
    if method not in ("", "missing"):
        value.setdefault("quant_method", method)
    job.set_key("config.json", KEY, value, f"copied from {file}")
