"""Experts that are stored as stacks under names that no loader maps, under the names of the architecture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from degarble.architectures.interface import Architecture, ParameterTemplate
from degarble.evidence.disk_names import DiskNames
from degarble.evidence.parameters import Parameters, is_expert_stack, module_template
from degarble.fixes.expert_seats import (
    Seating,
    fused_seatings,
    fused_templates,
    meaning,
    pair_of,
    single_seatings,
    single_templates,
)
from degarble.fixes.expert_stacks import ExpertStack, Share, read_stacks
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.formats.detect import formats
from degarble.formats.interface import StoredModule, WeightFormat


@repair("rename-experts")
def rename_experts(job: Job) -> None:
    """Store stacked experts under the names that the architecture needs: fused, or one matrix for each expert.

    ## What it changes
    Plain stacks of the shape of the family's fused parameters are renamed. All others are cut into one matrix for each
    expert, in the format's own names; bytes stay, and only a stored shape is written anew.

    ## Why there is one answer
    Number of experts, shapes and stored companions leave one parameter for each stack, every parameter is filled once,
    and no name contradicts it. It is a judgement where only names tell (gate and up have one shape), where a stack of
    gate and up has to be cut in two or has a name that says neither (the gate is taken to come first), and where a
    plain matrix is square, so that its orientation does not show.

    ## What it cannot do
    Turn matrices round, undo an interleaved order of rows, or fill in what is stored in no stack.
    """
    parameters: Parameters = job.need("parameters")
    unknown = {module.name for item in parameters.unknown if not item.is_bias for module in item.members}
    named = [module for module in job.modules_at_places() if module.name in unknown]
    layers = sorted({module.layer for module in named if module.layer is not None})
    if not layers:
        raise CannotRepair("the finding names no unknown stack of experts")
    for layer in layers:
        there = [m for m in job.modules.values() if m.layer == layer and m.name in unknown and is_expert_stack(m)]
        _Layer(job, parameters, layer).rename(there)


class _Layer:
    """The experts of one layer."""

    def __init__(self, job: Job, parameters: Parameters, layer: int) -> None:
        self._job = job
        self._parameters = parameters
        self._architecture: Architecture = parameters.architecture
        self._layer = layer
        self._names: DiskNames = job.need("disk_names")
        self._singles = single_templates(self._architecture, layer)
        self._pair = pair_of(self._architecture, self._singles)

    def rename(self, modules: Sequence[StoredModule]) -> None:
        """Rename or cut all stacks of the layer. Raises CannotRepair."""
        if not self._singles:
            raise CannotRepair(f"layer {self._layer} has no experts in this architecture")
        num_experts = int(self._singles[0].experts or 0)
        stacks = read_stacks(modules, self._formats(), num_experts)
        if not stacks:
            names = ", ".join(module.name for module in modules[:3])
            raise CannotRepair(f"{names}: no stacks of {num_experts} experts with all their parts")
        fused = (
            [] if self._is_stored_singly() else fused_seatings(stacks, fused_templates(self._architecture, self._layer))
        )
        if fused:
            self._rename_whole(self._chosen(fused))
        else:
            self._cut(self._chosen(self._seatings(stacks)))

    def _formats(self) -> Iterable[WeightFormat]:
        """Plain, and the formats that other modules of this checkpoint have."""
        known = formats()
        stored = {e.form.format for e, _ in self._job.modules.classes() if e.form.is_quantized and e.kind == "linear"}
        declared = self._job.evidence.find("declaration")
        if declared is not None and declared.method == "compressed-tensors":
            stored.add("compressed_pack")
        return [known["plain"], *(known[name] for name in sorted(stored & known.keys()))]

    def _is_stored_singly(self) -> bool:
        """Whether other layers have one matrix for each expert."""
        return any(self._parameters.present.get(module_template(t.name)) for t in self._singles)

    def _seatings(self, stacks: Sequence[ExpertStack]) -> list[Seating]:
        declaration = self._job.evidence.find("declaration")
        schemes = {
            t.name: declaration.scheme_for(self._module(t, 0)) if declaration is not None else None
            for t in self._singles
        }
        return single_seatings(stacks, self._singles, self._pair, schemes)

    def _chosen(self, seatings: Sequence[Seating]) -> Seating:
        """The one that shapes leave, or names. Raises CannotRepair."""
        if not seatings:
            raise CannotRepair(f"layer {self._layer}: the stacks do not fill every expert's parameters exactly once")
        named = [seating for seating in seatings if seating.fits_names]
        if len(named) != 1:
            what = f"{len(named)} ways to assign the stacks fit" if named else "names contradict what shapes allow"
            raise CannotRepair(f"layer {self._layer}: {what}")
        if len(seatings) > 1:
            self._job.judge("shapes do not tell which stack is which, and their names are believed")
        for stack in named[0].stacks:
            shape = stack.parts[stack.format.suffix_of("payload")].shape
            if stack.format.name == "plain" and shape[1] == shape[2]:
                self._job.judge(f"{stack.stem} is square: its orientation does not show")
        return named[0]

    def _rename_whole(self, seating: Seating) -> None:
        for stack, (template,) in zip(seating.stacks, seating.seats, strict=True):
            info = stack.parts["weight"]
            if len(meaning(template.name)) > 1 and not meaning(stack.stem):
                self._job.judge(f"{stack.stem} does not say that its rows are gate first, then up")
            own = template.name[len(module_template(template.name)) :]
            self._job.rename_tensor(info, self._names.module(module_template(template.name), (self._layer, None)) + own)

    def _cut(self, seating: Seating) -> None:
        for stack, seats in zip(seating.stacks, seating.seats, strict=True):
            if len(seats) > 1:
                leaves = [module_template(t.name).rpartition(".")[2] for t in seats]
                self._job.judge(
                    f"the first half of each expert's rows is taken to be {leaves[0]}, the second {leaves[1]}"
                )
            for number, template in enumerate(seats):
                self._cut_one(stack, template, number if len(seats) > 1 else None)
            for info in stack.parts.values():
                self._job.drop_tensor(info, "stored for each expert")

    def _cut_one(self, stack: ExpertStack, template: ParameterTemplate, half: int | None) -> None:
        for expert in range(stack.num_experts):
            share = Share(expert, half)
            for suffix, header in stack.headers(share).items():
                info = stack.parts[suffix]
                stored = self._job.workspace.shard(info.file).tensors[info.name].segments
                self._job.put_tensor(
                    info.file,
                    f"{self._module(template, expert)}.{suffix}",
                    header.dtype,
                    header.shape,
                    stack.segments(suffix, stored, share, template.shape),
                    f"cut from {info.name}",
                )

    def _module(self, template: ParameterTemplate, expert: int) -> str:
        return self._names.module(module_template(template.name), (self._layer, expert))
