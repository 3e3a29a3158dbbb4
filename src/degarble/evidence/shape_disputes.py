"""Evidence from stored shapes that contradict the config: which key is outvoted, or which tensor is odd.

Each key that an axis is computed from is a suspect. Its true value follows from the stored size, and is tried: the
whole architecture is drawn again with it, and everything on disk is compared anew. A value that settles more tensors
than it unsettles convicts the key, since most tensors that depend on it speak against the config.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from degarble.architectures.expression import ExpressionError, compile_expression
from degarble.architectures.family import find_family
from degarble.architectures.interface import MAX_SIZE, Architecture, ArchitectureError, ParameterTemplate
from degarble.checkpoint.interface import TensorInfo
from degarble.evidence.model import ModelConfig
from degarble.evidence.modules import Modules
from degarble.evidence.store import provides
from degarble.formats.detect import detect
from degarble.formats.interface import Form, StoredModule
from degarble.formats.scheme import Scheme
from degarble.methods.interface import Declaration

MAX_KEYS = 4
"""Keys that are corrected one after the other; a config with more faults than that is another model's."""
MAX_SUSPECTS = 48
MAX_DERIVED = 1024
"""Largest value tried for a key that sizes are derived from, such as the number of heads behind head_dim."""

Shape = tuple[int, ...]
Templates = Mapping[str, list[ParameterTemplate]]


class Witness(msgspec.Struct, frozen=True, kw_only=True):
    """Modules with equal headers, and the part of them whose shape is judged."""

    members: tuple[StoredModule, ...]
    is_bias: bool
    declared: Scheme | None

    @property
    def example(self) -> StoredModule:
        """One of them."""
        return self.members[0]

    @property
    def parameter(self) -> str:
        """Template of the parameter, without `.weight`."""
        return self.example.template + (".bias" if self.is_bias else "")

    def part(self, module: StoredModule) -> TensorInfo:
        """The tensor that shows the shape."""
        return (module.part("bias") if self.is_bias else module.payload) or module.any_part


class Contradicting(msgspec.Struct, frozen=True, kw_only=True):
    """One witness against the config."""

    witness: Witness
    members: tuple[StoredModule, ...]
    template: ParameterTemplate
    found: Shape | None
    """The logical shape on disk; None where headers only tell that it is not the expected one."""


class KeyDispute(msgspec.Struct, frozen=True, kw_only=True):
    """A key that most tensors depending on it contradict."""

    key: str
    """As the config of this file spells it."""
    declared: object
    proven: int
    against: tuple[Contradicting, ...]


class ShapeDisputes(msgspec.Struct, frozen=True, kw_only=True):
    """Keys at fault, tensors at fault, and the architecture with the keys corrected."""

    keys: tuple[KeyDispute, ...]
    tensors: tuple[tuple[Contradicting, str | None], ...]
    """Odd tensors, with the key that their odd axis comes from."""
    architecture: Architecture


@provides("shape_disputes")
def shape_disputes(
    modules_as_declared: Modules,
    model_config: ModelConfig,
    architecture: Architecture,
    declaration: Declaration | None = None,
) -> ShapeDisputes:
    """Hold every logical shape against the config's; on a healthy checkpoint this is one comparison a class."""
    court = _Court(modules_as_declared, declaration)
    keys: list[KeyDispute] = []
    config, current = model_config, architecture
    wrong = court.contradicting(current)
    while wrong and len(keys) < MAX_KEYS:
        verdict = _convict(court, wrong, config, current)
        if verdict is None:
            break
        key, value, changed, redrawn = verdict
        left = court.contradicting(redrawn)
        settled = _names(wrong) - _names(left)
        against = tuple(item for item in wrong if (item.witness.parameter, item.members[0].name) in settled)
        keys.append(KeyDispute(key=key, declared=_value(config, current, key), proven=value, against=against))
        config, current, wrong = changed, redrawn, left
    odd = tuple((item, next((name for name, _ in _suspects(item, config, current)), None)) for item in wrong)
    return ShapeDisputes(keys=tuple(keys), tensors=odd, architecture=current)


class _Court:
    """All witnesses of a checkpoint."""

    def __init__(self, modules: Modules, declaration: Declaration | None) -> None:
        self._witnesses: list[Witness] = []
        for example, members in modules.classes():
            if example.canonical is None or example.form.format == "companions":
                continue
            declared = None
            if declaration is not None and example.kind != "norm":
                declared = declaration.scheme_for(example.name)
            for is_bias in (False, True):
                if (example.part("bias") if is_bias else example.payload) is not None:
                    self._witnesses.append(Witness(members=tuple(members), is_bias=is_bias, declared=declared))

    def contradicting(self, architecture: Architecture) -> list[Contradicting]:
        """Witnesses that this architecture does not agree with."""
        templates: dict[str, list[ParameterTemplate]] = {}
        for template in architecture.templates:
            if template.dims:
                templates.setdefault(template.name.removesuffix(".weight"), []).append(template)
        return [item for witness in self._witnesses for item in _judge(witness, templates, architecture)]


def _judge(witness: Witness, templates: Templates, architecture: Architecture) -> Iterator[Contradicting]:
    known = templates.get(witness.parameter, [])
    if len({template.shape for template in known}) <= 1:
        groups = [(known[0], list(witness.members))] if known else []
    else:
        groups = _by_template(witness, architecture)
    for template, members in groups:
        form = _form(witness, template)
        found = _shape(witness, form)
        if found is None:
            if any(item.about == "shape" for item in form.contradictions):
                yield Contradicting(witness=witness, members=tuple(members), template=template, found=None)
        elif not is_same_shape(found, template.shape) and not form.contradictions:
            yield Contradicting(witness=witness, members=tuple(members), template=template, found=found)


def _by_template(witness: Witness, architecture: Architecture) -> list[tuple[ParameterTemplate, list[StoredModule]]]:
    """Layers of one name may differ in shape: then each member is asked for."""
    groups: dict[int, tuple[ParameterTemplate, list[StoredModule]]] = {}
    for module in witness.members:
        canonical = module.canonical or module.name
        names = (f"{canonical}.bias",) if witness.is_bias else (f"{canonical}.weight", canonical)
        template = next((found for name in names if (found := architecture.match(name)) is not None), None)
        if template is not None and template.dims:
            groups.setdefault(id(template), (template, []))[1].append(module)
    return list(groups.values())


def _form(witness: Witness, template: ParameterTemplate) -> Form:
    """What the headers say to someone who expects this shape."""
    if witness.is_bias or witness.example.form.format == "plain":
        return witness.example.form
    return detect(witness.example.parts, witness.declared, template.shape)[1]


def _shape(witness: Witness, form: Form) -> Shape | None:
    return witness.part(witness.example).shape if witness.is_bias else form.shape


def is_same_shape(found: Shape, expected: Shape) -> bool:
    """Equal but for axes of 1, and for the last two axes of a stack of experts, which tools store either way."""
    squeezed, wanted = [axis for axis in found if axis != 1], [axis for axis in expected if axis != 1]
    if squeezed == wanted:
        return True
    return len(wanted) == 3 and squeezed == [wanted[0], wanted[2], wanted[1]]


def _convict(
    court: _Court, wrong: list[Contradicting], config: ModelConfig, current: Architecture
) -> tuple[str, int, ModelConfig, Architecture] | None:
    """The key and value that settle the most, if they settle more than they unsettle."""
    suspects: dict[tuple[str, int], None] = {}
    for item in wrong:
        suspects |= dict.fromkeys(_suspects(item, config, current))
    before = _names(wrong)
    best: tuple[tuple[int, int, int], tuple[str, int, ModelConfig, Architecture]] | None = None
    for key, value in list(suspects)[:MAX_SUSPECTS]:
        changed = config.with_value(key, value)
        try:
            redrawn = changed.architecture()
        except ArchitectureError:
            continue
        if redrawn is None:
            continue
        after = _names(court.contradicting(redrawn))
        settled, unsettled = len(before - after), len(after - before)
        rank = (settled - unsettled, -unsettled, int(key in config.text))
        if settled > unsettled and (best is None or rank > best[0]):
            best = (rank, (key, value, changed, redrawn))
    return best[1] if best is not None else None


def _names(items: list[Contradicting]) -> set[tuple[str, str]]:
    return {(item.witness.parameter, module.name) for item in items for module in item.members}


def _suspects(item: Contradicting, config: ModelConfig, architecture: Architecture) -> Iterator[tuple[str, int]]:
    """Keys behind the axes that differ, each with the value that would make the axis right."""
    for text, size in _odd_axes(item):
        for name in sorted(compile_expression(text).names, key=text.index):
            value = _solve(text, name, size, architecture.config)
            if value is None:
                continue
            key, sources = _spelling(name, config, architecture)
            yield key, value
            for source, default in sources:
                yield from _sources_of(source, default, value, architecture)


def _odd_axes(item: Contradicting) -> Iterator[tuple[str, int]]:
    template = item.template
    if item.found is None:
        yield from _axes_from_count(item)
        return
    if len(item.found) != len(template.shape):
        return
    for text, size, expected in zip(template.dims, item.found, template.shape, strict=True):
        if size != expected:
            yield text, size


def _axes_from_count(item: Contradicting) -> Iterator[tuple[str, int]]:
    """Where headers tell only how many codes there are, one axis at a time is taken to be wrong."""
    module, template = item.witness.example, item.template
    scheme = module.form.scheme
    if scheme is None or not scheme.num_bits or len(template.shape) != 2:
        return
    count = item.witness.part(module).nbytes * 8 // scheme.num_bits
    rows, columns = template.shape
    if count % columns == 0:
        yield template.dims[0], count // columns
    if count % rows == 0:
        yield template.dims[1], count // rows


def _solve(text: str, name: str, size: int, config: Mapping[str, object]) -> int | None:
    """The value of `name` that gives `size`; every axis is linear in each of its keys."""
    expression = compile_expression(text)
    try:
        offset = expression.evaluate({**config, name: 0})
        step = expression.evaluate({**config, name: 1}) - offset
        if step <= 0 or (size - offset) % step:
            return None
        value = (size - offset) // step
        right = expression.evaluate({**config, name: value}) == size
    except (ExpressionError, TypeError):
        return None
    return value if right and 0 < value <= MAX_SIZE else None


def _spelling(name: str, config: ModelConfig, architecture: Architecture) -> tuple[str, list[tuple[str, str]]]:
    """The key as this config writes it; and if it is left to its default, the keys that the default is made of."""
    family = find_family(architecture.model_type)
    row = next((key for key in family.keys if key.name == name), None) if family is not None else None
    if row is None:
        return name, []
    written = next((key for key in (row.name, *row.aliases) if config.text.get(key) is not None), None)
    if written is not None or row.default is None:
        return written or name, []
    return name, [(source, row.default.text) for source in sorted(row.default.names) if source in config.text]


def _sources_of(source: str, default: str, value: int, architecture: Architecture) -> Iterator[tuple[str, int]]:
    expression = compile_expression(default)
    for candidate in range(1, MAX_DERIVED + 1):
        try:
            if expression.evaluate({**architecture.config, source: candidate}) == value:
                yield source, candidate
                return
        except ExpressionError:
            return


def _value(config: ModelConfig, architecture: Architecture, key: str) -> object:
    """What the config says, or what follows from its silence."""
    written = config.text.get(key)
    return written if written is not None else architecture.config.get(key)
