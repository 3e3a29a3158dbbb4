"""Tensors under names that no loader maps, under the names of the parameters that are missing."""

from __future__ import annotations

from degarble.evidence.disk_names import DiskNames
from degarble.evidence.parameters import Missing, Parameters, Position
from degarble.fixes.expert_seats import meaning
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.formats.interface import StoredModule


@repair("rename-tensor")
def rename_tensor(job: Job) -> None:
    """Rename a module that no loader maps to the one parameter that is missing beside it.

    ## What it changes
    Names in the headers and the index; bytes stay.

    ## Why there is one answer
    In the same layer and under the same parent exactly one module is unknown and one parameter missing, and the shape
    fits; of several, exactly one pair says the same, as `gate_proj` and Mixtral's `w1` do. That the two are one is
    still a conclusion, so the step counts as a judgement; a reference proves it.

    ## What it cannot do
    Split fused tensors, whose inner order matters, or name a tensor that nothing is missing for.
    """
    parameters: Parameters = job.need("parameters")
    names: DiskNames = job.need("disk_names")
    unknown = {module.name for item in parameters.unknown for module in item.members}
    modules = [module for module in job.modules_at_places() if module.name in unknown]
    if not modules:
        raise CannotRepair("the finding names no unknown module")
    job.judge("the only unknown module beside the only missing parameter (of its meaning) is taken to be it")
    for module in modules:
        wanted = _only_missing(module, parameters, [m for m in modules if _home(m) == _home(module)])
        target = names.module(wanted.module, (module.layer, module.expert))
        for info in module.parts.values():
            job.rename_tensor(info, target + info.name.removeprefix(module.name))


def _home(module: StoredModule) -> tuple[str, int | None, int | None]:
    return module.name.rpartition(".")[0], module.layer, module.expert


def _only_missing(module: StoredModule, parameters: Parameters, unknown: list[StoredModule]) -> Missing:
    """The one parameter that is missing at the module's place. Raises CannotRepair if there are several, or none."""
    position: Position = (module.layer, module.expert)
    parent = module.template.rpartition(".")[0]
    found = [
        item
        for item in parameters.missing
        if not item.is_bias and position in item.positions and item.module.rpartition(".")[0] == parent
    ]
    if len(found) > 1 and (said := meaning(module.name)):
        found = [item for item in found if meaning(item.module) == said]
        unknown = [one for one in unknown if meaning(one.name) == said]
    if len(found) != 1 or len(unknown) != 1:
        raise CannotRepair(f"{len(unknown)} unknown modules and {len(found)} missing parameters in {parent}")
    shape, wanted = module.form.shape, found[0].template
    if shape is not None and wanted.dims and tuple(wanted.shape) != tuple(shape):
        raise CannotRepair(f"{module.name} is {list(shape)}, {found[0].module} would be {list(wanted.shape)}")
    return found[0]
