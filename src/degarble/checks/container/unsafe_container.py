"""CKP109: weights in a pickle, which are reported and never opened."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from degarble.evidence.store import Coverage
from degarble.evidence.weights import Shard
from degarble.finding import Finding, Fix, Location, Severity
from degarble.registry import check

PICKLE = re.compile(r".*\.(bin|pt|pth|ckpt|pkl|pickle)\Z", re.IGNORECASE | re.DOTALL)

NOT_WEIGHTS = re.compile(
    r"(training_args|train_args|optimizer|optim|scheduler|scaler|rng_state|random_states|trainer_state|.*imatrix|"
    r".*calib|.*vocab|.*tokenizer|.*dataset|.*inputs)[^/]*\Z",
    re.IGNORECASE | re.DOTALL,
)
"""Pickles of a training run and other by-products; nobody loads them to serve the model."""

NO_PICKLE = re.compile(r"(openvino|ggml|ggjt|.*onnx|.*coreml|.*\.q\d)[^/]*\Z", re.IGNORECASE | re.DOTALL)
"""Raw weights of other runtimes that share the suffix `.bin`."""


@check("CKP109", severity=Severity.WARNING)
def unsafe_container(
    files: Mapping[str, int], coverage: Coverage, shards: Mapping[str, Shard] | None = None
) -> Iterator[Finding]:
    """Weights lie in a pickle file, which can run code when it is loaded and cannot be checked.

    ## What it looks for
    File names: `.bin`, `.pt`, `.pth`, `.ckpt`, `.pkl` other than by-products of training. The files are never opened.

    ## Why output turns to garbage
    It does not by itself. But a pickle has no header to hold against the config, so none of the other rules can speak
    about it; it may hold older weights than the safetensors beside it, which a loader picks depending on its version.
    And loading it runs whatever code it contains.

    ## What you will see
    No rule about weights speaks, or two engines that load different weights from one folder.

    ## How to tell it from its look-alikes
    `training_args.bin`, `optimizer.pt`, `rng_state.pth`, `scheduler.pt` belong to a training run: info only. Raw `.bin`
    weights of OpenVINO, ONNX and old GGML files are no pickles and are left alone.

    ## How to confirm
    Look at the first bytes: `PK` (a zip made by torch.save) or 0x80 (a bare pickle).

    ## How to repair it
    Convert to safetensors in a sandbox, or take the repository's safetensors revision, and check that. Converting runs
    code of the file, so it is never done unattended.

    ## References
    The README of huggingface/safetensors ("Why create a new format?")
    """
    for name in files:
        base = name.rpartition("/")[2]
        if not PICKLE.match(base) or NO_PICKLE.match(base):
            continue
        if NOT_WEIGHTS.match(base):
            yield _finding(name, "a by-product of training in a pickle; nothing loads it for serving", Severity.INFO)
            continue
        if shards is None:
            coverage.add(name, "a pickle is never opened, so its weights were not checked")
        yield _finding(name, "weights in a pickle: never opened, so not checked; loading it may run code", None)


def _finding(name: str, why: str, severity: Severity | None) -> Finding:
    return Finding(
        location=Location(file=name),
        message=f"{name}: {why}",
        severity=severity,
        fold="by-product" if severity else "weights",
        fix=None if severity else Fix(id="convert-to-safetensors", safe=False),
    )
