"""Values of a checkpoint, judged at the speed of a checksum. Checks of the families WGT and NUM read these records.

    profiles         tensor name -> TensorProfile   every byte of every tensor       tensor_profile.py, raw.py
    module_profiles  module name -> ModuleProfile   a stated sample of every module  module_profile.py, sample.py
    joint            layer -> JointProfile          pairs of modules, lazily         joint.py, layer.py

Ask for them by parameter name, with level=Level.CONTENT:

    def scale_not_finite(modules: Modules, profiles: Mapping[str, TensorProfile]) -> Iterator[Finding]:
        for module in modules.values():
            info = module.part("scale")
            profile = profiles.get(info.name) if info is not None else None
            if profile is not None and profile.nonfinite:
                row, col = profile.first_nonfinite

A tensor that cannot be read (file too short, dtype unknown) has no entry: always use `.get`. Rows and columns are those
of the stored tensor with its leading axes flattened: row = index over shape[:-1], col = index in shape[-1]; GGUF blocks
count blocks as columns.

TensorProfile (exact)      name dtype shape num_rows count | nonfinite first_nonfinite | absmax | constant (the 64-bit
                           pattern throughout, or None) is_zero | zero_rows constant_rows (count, first) | flat_bytes
                           first_flat (holes) | key (equal tensors have equal keys) | row_tops | sums mean rms (vectors)
  .counts (ValueCounts)    None for large payloads: zeros negatives subnormals, first_zero …, min_positive
ModuleProfile (sampled)    name outputs num_outputs num_values is_exhaustive | reach | dead_rows num_dead_rows (of all)
  .values (ValueStats)     rms mean std absmax median_abs nonfinite log_row_rms
  .codes (CodeStats)       num_bits num_groups histogram upper_half lower upper shift shift_up shift_down correlation
                           extremes both_ends reach_zero rho rho_half spill num_spill; None for plain and float codes
  .scales (ScaleStats)     of all scales: shape nonfinite zeros negatives with first places, min_positive absmax
                           log2_median power_of_two residual residual_at row_ratio row_at tiles (swizzle)
JointProfile (sampled)     layer expert modules pairs (stored, channels, neurons, best) key_value gate_up rotary
duplicates.py              equal_tensors(infos, profiles, reader): groups of bit-identical tensors, proven by all bytes
repeated_rows.py           repeated_rows(raw, num_rows): groups of equal rows, proven by all bytes
reference.py               the slow twins

What a sample is: 1/64 of a module's values, at least 16 Ki and at most 64 Ki; 64 neurons and 64 head dimensions of every
block, four times as many where they look wrong; two experts a layer for pairs, every expert otherwise. `--sample` reads
one chunk of 16 of large tensors and makes the report partial.

`--exhaustive`: module_profiles are those of all values, exactly (whole_module.py), but for median_abs, which stays that
of 2,048 to 4,096 values and is within 2 %, and for facts that are samples of scales or of rows of blocks (power_of_two,
log2_median, tiles, reach of block-scaled weights). joint stays a sample: 128 neurons and head dimensions of every block
(blocks.py says why), and every expert.
"""
