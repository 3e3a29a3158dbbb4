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

TensorProfile (exact)      name dtype shape count nbytes | nonfinite first_nonfinite | absmax | constant (the one bit
                           pattern, or None) | zero_rows, constant_rows (RowSet: count, first) | longest_run, run_at
                           (bytes equal to one word, for holes) | key (equal payloads have equal keys) | detail
  .detail (ValueCounts)    None for large payloads: zeros negatives subnormals with their first places, min_positive,
                           mean, rms, distinct
ModuleProfile (sampled)    name | outputs (rows sampled) num_values is_exhaustive | values | codes | scales | dead_rows
  .values (ValueStats)     rms mean std absmax median_abs log_row_rms
  .codes (CodeStats)       num_bits histogram upper_half log_ratio spill shift shift_up shift_down corr extremes
                           both_ends reach_zero rho rho_half num_groups
  .scales (ScaleStats)     count min_positive absmax power_of_two log2_median residual (octaves) residual_at
JointProfile               one layer (and expert): see layer.py; pure functions in joint.py take dequantised rows
duplicates.py              equal_tensors(infos, profiles, reader): groups of bit-identical tensors
repeated_rows.py           repeated_rows(array): groups of equal rows, exact
"""
