"""A module whose groups or bits differ from the config's."""

from __future__ import annotations

import copy
import re
from typing import Any

from degarble.fixes.collapse_groups import collapse
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.formats.interface import StoredModule


@repair("write-module-override")
def write_module_override(job: Job) -> None:
    """Bring a deviating module back to the declared group size, or give it a rule of its own.

    ## What it changes
    Where the finer groups of the module only repeat the scales of the declared ones: its tables, one of each run kept.
    Otherwise the config: an entry of `dynamic` (GPTQ, AWQ) or a group of its own (compressed-tensors).

    ## Why there is one answer
    Repeated scales are equal byte for byte, so that nothing is lost. A rule for one module is a judgement: engines may
    not support mixed schemes, or ask for the fused name.

    ## What it cannot do
    Write rules in the config of a method that has none.
    """
    modules = job.modules_at_places()
    if all(_is_finer(job, module) for module in modules):
        try:
            for module in modules:
                declared = job.declaration.scheme_for(module.name)
                collapse(job, [module], (declared.group_size if declared is not None else 0) or 0)
            return
        except CannotRepair:
            if job.edits:
                raise
    job.judge("engines may not support a module with a scheme of its own")
    for module in modules:
        _write_rule(job, module)


def _is_finer(job: Job, module: StoredModule) -> bool:
    declared, stored = job.declaration.scheme_for(module.name), module.form.scheme
    if declared is None or stored is None or declared.num_bits != stored.num_bits:
        return False
    return bool(declared.group_size and stored.group_size and declared.group_size > stored.group_size)


def _write_rule(job: Job, module: StoredModule) -> None:
    declaration, scheme = job.declaration, module.form.scheme
    if scheme is None or not scheme.num_bits or not scheme.group_size:
        raise CannotRepair(f"{module.name}: the headers prove no bits and group size")
    base = f"{declaration.key}." if declaration.key else ""
    if declaration.method in ("gptq", "awq"):
        table = job.value(declaration.file, f"{base}dynamic")
        rule = {"bits": scheme.num_bits, "group_size": scheme.group_size}
        own = {f"+:{re.escape(module.name)}$": rule}
        job.set_key(declaration.file, f"{base}dynamic", {**own, **(table or {})}, "a rule for one module")
    elif declaration.method == "compressed-tensors":
        groups = copy.deepcopy(job.value(declaration.file, f"{base}config_groups"))
        job.set_key(declaration.file, f"{base}config_groups", _with_group(groups, module), "a group for one module")
    else:
        raise CannotRepair(f"a config of {declaration.method} has no rules for single modules")


def _with_group(groups: Any, module: StoredModule) -> dict[str, Any]:
    """The first group again, for one name."""
    if not isinstance(groups, dict) or not groups or module.form.scheme is None:
        raise CannotRepair("the config has no groups")
    own = copy.deepcopy(next(iter(groups.values())))
    own["targets"] = [module.name]
    own["weights"] |= {"num_bits": module.form.scheme.num_bits, "group_size": module.form.scheme.group_size}
    return {**groups, f"group_{len(groups)}": own}
