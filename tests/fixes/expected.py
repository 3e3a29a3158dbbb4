"""What repairs are expected to reach, fault by fault, and why where that is not everything."""

from __future__ import annotations

from collections.abc import Mapping

SAFE_ALONE = frozenset({
    "act-order-without-groups", "added-token-flags-disagree", "all-zero-points-unpacked",
    "bits-or-group-contradict", "block-grid-contradicts", "block-size-lost", "byte-fallback-off",
    "byte-tokens-typed-normal", "bytes-not-decoded", "cleanup-changes-text", "cleanup-forced",
    "config-differs-from-reference", "config-in-sidecar-only", "config-in-utf-16", "config-with-byte-order-mark",
    "control-token-not-added", "control-token-not-special", "decoder-mismatch", "decoder-missing", "double-bos",
    "dtype-contradicts", "dtype-spellings-contradict", "eos-id-invalid", "eos-id-quoted", "every-token-stripped",
    "exponent-bytes-as-values-in-one-module", "exponent-bytes-undeclared", "first-space-kept", "fold-not-inverse",
    "fused-group-partly-listed", "fused-scales-disagree", "fused-scales-disagree-a-little",
    "fused-scales-disagree-everywhere", "gate-not-compensated", "gguf-control-typed-normal",
    "gguf-pretokenizer-missing", "gguf-pretokenizer-unknown", "gguf-pretokenizer-wrong", "global-scale-reciprocal",
    "global-scale-reciprocal-in-one-layer", "global-scale-reciprocal-in-one-module", "group-size-doubled",
    "group-size-halved", "group-size-halved-with-repeats", "group-size-misdeclared", "group-size-of-a-row",
    "head-not-skipped", "header-malformed-index", "heads-contradict", "idle-ids-in-decoder", "ignore-merges-lost",
    "indentation-stripped", "index-names-absent-tensor-elsewhere", "key-lost-against-reference",
    "kv-scale-misplaced", "kv-scales-misplaced-everywhere", "kv-scales-of-a-layer-outside-attention",
    "listed-ids-shifted", "look-alike-text", "merges-differ-from-reference", "method-label-swapped",
    "module-of-another-layer", "module-scaled", "norm-alone-scaled", "normalizer-differs-from-reference",
    "one-module-regrouped", "order-denied", "pretokenizer-differs-from-reference", "punctuation-joined",
    "quantized-module-listed", "repeats-collapsed", "role-id-disagrees", "rope-theta-differs-from-reference",
    "router-entry-takes-gate-along", "router-not-compensated", "router-not-skipped", "rows-shifted",
    "shape-contradicts-config", "shard-missing-outside", "skip-list-read-differently", "spaces-collapsed",
    "spaces-not-decoded", "static-order-without-groups", "stored-plain-but-declared-quantized",
    "stored-plain-in-all-layers", "stream-decode-lossy", "template-differs-from-reference",
    "template-marker-full-width", "template-marker-in-ascii", "template-marker-in-capitals",
    "template-marker-unclosed", "template-marker-with-zero-width", "template-writes-other-system-prompt",
    "tensor-in-two-shards", "tensor-not-in-index", "tensor-not-in-index-stale", "text-byte-special",
    "text-piece-unused", "tie-flag-beside-new-head", "tie-flag-contradicts", "tokenizer-differs-from-reference",
    "token-id-out-of-range", "truncation-stored", "vocabulary-contradicts", "zero-point-shape",
    "zero-points-of-the-other-version",
})  # fmt: skip
"""Mended from the files at hand, by steps that leave one answer."""

JUDGED_ALONE = frozenset({
    "added-token-unknown", "additional-token-unknown", "block-halves-interleaved", "class-of-qwen",
    "class-overrides-pipeline", "config-key-ill-typed",
    "experts-stacked-with-nothing-lost", "first-token-beyond-half", "foreign-special-tokens", "foreign-tokenizer-config",
    "fused-group-partly-skipped", "g-idx-uninformative", "gate-and-up-exchanged",
    "gate-and-up-exchanged-everywhere", "gate-and-up-interleaved", "group-out-of-range", "groups-uneven",
    "head-untied-without-head", "header-malformed-trailing", "layer-declared-away", "lm-head-missing",
    "module-exchanged", "nibbles-reversed", "nibbles-swapped", "norm-unknown", "one-grid-flattened",
    "one-grid-transposed", "pack-order-contradicts", "plain-model-declared-quantized", "rotary-rows-of-one-layer",
    "row-pairs-interleaved", "scale-orphaned-beside-plain", "scales-swizzled", "scales-swizzled-everywhere",
    "skip-entry-matches-nothing", "skip-entry-misspelt", "skip-pattern-matches-nothing", "special-token-unknown",
    "stored-plain-with-scales-left", "tensor-unknown", "tensor-unknown-in-all-layers", "turn-end-is-not-eos",
    "turn-end-lost-from-generation-config", "user-text-becomes-control", "word-is-special", "zero-point-off-by-one",
    "zero-point-one-too-low", "zero-points-low-everywhere", "zero-points-misordered",
    "zero-points-of-a-layer-misordered", "zero-points-of-one-layer", "zero-points-rolled", "zero-points-transposed",
})  # fmt: skip
"""Mended from the files at hand, with a judgement."""

ALONE: Mapping[str, str] = dict.fromkeys(SAFE_ALONE, "safe") | dict.fromkeys(JUDGED_ALONE, "judged")
"""All other faults lose what no file holds: they are refused, and the refusal says what to fetch."""

PLAIN = "the weights stay plain, as they were stored, and the list follows"
ROUNDED = "block scales are rounded to E4M3 again"
LAST_BIT = "two neighbouring floats may have the same reciprocal"
CLIPPED = "the fault clipped values at the end of the range"

BYTES_WITH_REFERENCE: Mapping[str, str] = {
    "skip-list-read-differently": PLAIN,
    "stored-plain-but-declared-quantized": PLAIN,
    "stored-plain-in-all-layers": PLAIN,
    "stored-plain-with-scales-left": PLAIN,
    "zero-points-of-the-other-version": "the label follows the zero points",
    "global-scale-reciprocal": LAST_BIT,
    "global-scale-reciprocal-in-one-layer": LAST_BIT,
    "global-scale-reciprocal-in-one-module": LAST_BIT,
    "fused-scales-disagree": ROUNDED,
    "fused-scales-disagree-a-little": ROUNDED,
    "fused-scales-disagree-everywhere": ROUNDED,
    "exponent-bytes-undeclared": "the fault rounded the scales and quantised again; the config now says so",
    "exponent-bytes-as-values-in-one-module": "the fault rounded the scales to powers of two",
}
"""Mended, but other bytes than the healthy checkpoint's."""

BYTES_ALONE: Mapping[str, str] = {
    **BYTES_WITH_REFERENCE,
    "first-token-beyond-half": "the product is scaled by powers of two, not what the fault changed",
    "tie-flag-beside-new-head": "the new head stays, and is now used",
    "lm-head-missing": "the head is lost; the model is declared tied",
    "fused-group-partly-skipped": "the group becomes plain",
    "zero-point-off-by-one": CLIPPED,
    "zero-point-one-too-low": CLIPPED,
    "zero-points-low-everywhere": CLIPPED,
    "zero-points-of-one-layer": CLIPPED,
}

NOT_WITH_REFERENCE: Mapping[str, str] = {
    "shard-missing-in-numbering": "the reference is one file, not two",
    "unsafe-container": "pickles are never opened, and the reference has none",
    "kernel-shape-unsupported": "the file is right, and a kernel cannot read it",
    "bf16-declared-served-fp16": "a matter of serving",
    "first-token-beyond-half": "four tensors of every layer changed together: no single one brings it back",
    "only-one-layer-quantized": "nothing would be left of the checkpoint",
    "quantized-share-too-small": "nothing would be left of the checkpoint",
    "weights-differ-beyond-format": "all layers of the small model are exchanged, so that none is left to recognise it by",
}
"""Faults that a reference does not mend, and why."""

LARGE = frozenset({
    "added-token-flags-disagree", "byte-fallback-off", "gguf-pretokenizer-wrong", "ignore-merges-lost",
    "listed-ids-shifted",
})  # fmt: skip
"""Faults that only checkpoints with large vocabularies can have: seconds each."""
