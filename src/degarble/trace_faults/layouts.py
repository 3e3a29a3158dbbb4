"""Faults of the meta line: strides, shapes, heads, reach, owners, latent records."""

from __future__ import annotations

from degarble.finding import Location
from degarble.trace_faults.interface import NotApplicable, TracePatient, trace_fault


@trace_fault("KVC601")
def strides_of_another_layout(patient: TracePatient) -> Location:
    """Strides of HND under axes and a layout that say NHD: a kernel that was told NHD reads other elements."""
    group = patient.group
    axes, shape, strides = group.get("axes"), group.get("shape"), group.get("strides")
    if not axes or not shape or not strides or "num_kv_heads" not in axes or 1 in shape:
        raise NotApplicable("no strided head axis")
    a, b = axes.index("block_size"), axes.index("num_kv_heads")
    strides[b], strides[a] = shape[a] * strides[-1] * shape[-1], strides[-1] * shape[-1]
    group.pop("stride_order", None)
    group["layout"] = "NHD" if a < b else "HND"
    return Location(line=0)


@trace_fault("KVC601")
def page_stride_too_small(patient: TracePatient) -> Location:
    """Pages that overlap by one row."""
    group = patient.group
    if not group.get("strides") or not group.get("axes") or "num_blocks" not in group["axes"]:
        raise NotApplicable("no page stride")
    index = group["axes"].index("num_blocks")
    if index != 0 or group["shape"][0] < 2:
        raise NotApplicable("pages are not outermost")
    group["strides"][0] -= group["shape"][-1]
    return Location(line=0)


@trace_fault("KVC612")
def axes_not_declared(patient: TracePatient) -> Location:
    """A shape that fits NHD and HND, without axes."""
    group = patient.group
    heads, size = patient.meta.get("num_kv_heads"), group.get("block_size")
    if not heads or not size or group.get("kind") not in ("full", "window") or patient.meta.get("tp", 1) != 1:
        raise NotApplicable("no heads")
    patient.meta["num_kv_heads"] = size
    patient.meta["num_heads"] = size * 2
    group["shape"] = [group["num_blocks"], size, size, patient.meta["head_dim"]]
    for key in ("axes", "strides", "layout"):
        group.pop(key, None)
    return Location(line=0)


@trace_fault("KVC614")
def heads_do_not_divide(patient: TracePatient) -> Location:
    """Three ranks for the KV heads of the model."""
    if not patient.meta.get("num_kv_heads") or patient.group.get("kind") == "mla":
        raise NotApplicable("no heads")
    patient.meta["tp"] = 3 if patient.meta["num_kv_heads"] % 3 and 3 % patient.meta["num_kv_heads"] else 7
    return Location(line=0)


@trace_fault("KVC614")
def heads_counted_twice(patient: TracePatient) -> Location:
    """A rank that holds twice its heads."""
    group = patient.group
    if not group.get("axes") or "num_kv_heads" not in group["axes"]:
        raise NotApplicable("no head axis")
    group["shape"][group["axes"].index("num_kv_heads")] *= 2
    group.pop("strides", None)
    return Location(line=0)


@trace_fault("KVC619")
def pool_beyond_32_bits(patient: TracePatient) -> Location:
    """A pool of sixteen million blocks with 32-bit kernels."""
    group = patient.group
    if not group.get("axes") or "num_blocks" not in group["axes"] or group["axes"].index("num_blocks") != 0:
        raise NotApplicable("pages are not outermost")
    patient.meta["num_blocks"] = group["num_blocks"] = group["shape"][0] = 1 << 24
    group["index_bits"] = 32
    return Location(line=0)


@trace_fault("KVC624")
def kernel_block_size_does_not_divide(patient: TracePatient) -> Location:
    """Kernel pages of seven rows."""
    patient.group["kernel_block_size"] = 7
    return Location(line=0)


@trace_fault("KVC629")
def owner_owns_nothing(patient: TracePatient) -> Location:
    """A layer that shares the cache of one that shares itself."""
    group = patient.group
    layers = group.get("layers") or []
    if len(layers) < 3:
        raise NotApplicable("too few layers")
    group["owner"] = [layers[0], layers[0], layers[1], *layers[3:]]
    return Location(line=0, layer=layers[2])


@trace_fault("KVC631")
def latent_without_rotary_part(patient: TracePatient) -> Location:
    """A latent cache 512 wide where 512 + 64 are needed."""
    group = patient.group
    if group.get("kind") not in ("full", "mla"):
        raise NotApplicable("a window group")
    patient.meta.update(kv_lora_rank=512, qk_rope_head_dim=64)
    group.update(kind="mla", axes=["num_blocks", "block_size", "latent"], parts=["latent"], index_bits=64)
    group["shape"] = [group["num_blocks"], group["block_size"], 512]
    for key in ("strides", "layout"):
        group.pop(key, None)
    return Location(line=0)
