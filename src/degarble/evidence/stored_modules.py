"""Evidence about modules, judged with the sizes that most tensors prove rather than with a config they outvote.

A wrong size in the config would otherwise be blamed on the quantisation: codes for 512 columns look like half the
bits for 1024.
"""

from __future__ import annotations

from collections.abc import Mapping

from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.tensor_data import TensorReader
from degarble.evidence.modules import Modules, judge_modules
from degarble.evidence.shape_disputes import ShapeDisputes
from degarble.evidence.store import provides
from degarble.methods.interface import Declaration


@provides("modules")
def modules(
    modules_as_declared: Modules,
    groups: Mapping[str, dict[str, TensorInfo]],
    names: Mapping[str, str | None],
    reader: TensorReader,
    shape_disputes: ShapeDisputes | None = None,
    declaration: Declaration | None = None,
) -> Modules:
    """All modules; judged a second time only where the config is at fault."""
    if shape_disputes is None or not shape_disputes.keys:
        return modules_as_declared
    return judge_modules(groups, names, reader, shape_disputes.architecture, declaration)
