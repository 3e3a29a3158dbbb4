"""A companion that follows from others of its module."""

from __future__ import annotations

from degarble.evidence.modules import Modules
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.formats.interface import StoredModule


@repair("derive-companion")
def derive_companion(job: Job) -> None:
    """Compute a missing companion from the parts that are stored: ModelSlim's `weight_scale = deq_scale / input_scale`.

    ## What it changes
    One small tensor is added for each named module, beside its codes, in the type that the companion has elsewhere in
    the checkpoint.

    ## Why there is one answer
    The stored product was made from it: the value is taken whose product with the input scale is the stored one.

    ## What it cannot do
    Give the last bit for certain where neighbouring values have the same product, or where no other module tells the
    type: it is then that of the product, or float32 for a product kept as bits in int64.
    """
    for module in job.modules_at_places():
        roles = module.derivable()
        if not roles:
            raise job.cannot(f"{module.name}: the parts that are stored do not tell {', '.join(module.form.missing)}")
        for role in roles:
            try:
                array = module.derive_part(role, _dtype(job.modules, module, role))
            except ValueError as reason:
                raise CannotRepair(str(reason)) from None
            job.add_tensor(module.any_part.file, module.name_of(role), array, f"from {_sources(module, role)}")


def _sources(module: StoredModule, role: str) -> str:
    return " and ".join(module.suffix_of(source) for source in module.format.derived[role])


def _dtype(modules: Modules, module: StoredModule, role: str) -> str:
    """Of a module of the same format that has it; else that of the first source, if it is floating-point."""
    for example, _ in modules.classes():
        part = example.part(role)
        if part is not None and example.form.format == module.form.format:
            return part.dtype
    source = module.part(module.format.derived[role][0])
    return source.dtype if source is not None and source.dtype.startswith(("F", "BF")) else "F32"
