"""`degarble quantize`: a new checkpoint, made layer by layer in bounded memory, verified before it appears."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch

from degarble.checkpoint.tensor_data import DTYPES as TENSOR_DTYPES
from degarble.checkpoint.tensor_data import Array
from degarble.errors import EvidenceMissing, TargetError, UsageError
from degarble.formats.interface import PAYLOAD
from degarble.report.interface import Report
from degarble.version import __version__
from degarble.whole_file import write_whole
from degarble_engine.numerics.tokens import TokenBatch
from degarble_engine.numerics.walk import Watch
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.quantize.assembly import assemble
from degarble_engine.quantize.calibration import calibration_batch
from degarble_engine.quantize.calibration_stream import Chunk, chunks_of
from degarble_engine.quantize.card import CARD, PROVENANCE, base_model_of, card, provenance
from degarble_engine.quantize.choice import Choice, choose
from degarble_engine.quantize.interface import Rounded
from degarble_engine.quantize.layer_file import MatrixRecord, write_layer
from degarble_engine.quantize.layer_rounding import LayerRounding
from degarble_engine.quantize.recipe import HUB_ID, Recipe
from degarble_engine.quantize.site import Site
from degarble_engine.quantize.smoke import smoke
from degarble_engine.quantize.verification import digest_of, judged, prove_values
from degarble_engine.quantize.working_folder import WorkingFolder
from degarble_engine.sensitivity.plan import Plan, make_plan
from degarble_engine.walked_report import target_of

MAX_LISTED = 12


def quantize(target: str, out: str, recipe: Recipe | None = None, progress: Watch | None = None) -> Report:
    """Quantise what the user named into the new folder `out`.

    A job that was interrupted goes on from its last layer when it is called again. Raises UsageError for a recipe that
    makes no sense, TargetError where the model cannot be run or the result fails its verification.
    """
    try:
        return Quantizing(WalkedModel.open(target), Path(out), recipe or Recipe(), progress).run()
    except OSError as error:
        raise TargetError(f"{error.filename or out}: {error.strerror or error}") from None


@dataclass(slots=True)
class Quantizing:
    """One job."""

    model: WalkedModel
    out: Path
    recipe: Recipe
    progress: Watch | None = None
    _choice: Choice = field(init=False)
    _job: dict[str, Any] = field(init=False)
    _plain_tensors: dict[str, Array] = field(default_factory=dict)
    _layer_notes: list[str] = field(default_factory=list)
    _plan: Plan | None = None

    def run(self) -> Report:
        """See `quantize`."""
        if self.out.exists() or self.out.is_symlink():
            raise UsageError(f"{self.out}: already exists; give a new folder")
        if self.recipe.base_model is not None and not HUB_ID.match(self.recipe.base_model):
            raise UsageError(f"--base-model {self.recipe.base_model[:80]!r}: expected an id like org/name")
        self._choice = choose(self.model, self.recipe)
        chunks, text = self._calibration()
        self._job = self._identity(text)
        folder = WorkingFolder(self.out, self._job)
        if self.recipe.target_bits is not None:
            self._plan = self._planned(folder, chunks)
            self._choice = choose(self.model, self.recipe, self._plan.schemes(self.recipe))
        self._walk(folder, chunks)
        del chunks  # hidden states of the whole text, which nothing after the walk needs
        return self._assembled(folder)

    @property
    def _needs_inputs(self) -> bool:
        return self.recipe.algorithm().needs_inputs or any(one.is_static for one in self._choice.schemes.values())

    def _calibration(self) -> tuple[list[Chunk], dict[str, Any] | None]:
        if not self._needs_inputs:
            return [], None
        batch = self._text()
        text = {"sequences": batch.ids.shape[0], "tokens": batch.num_tokens, "digest": batch.digest()}
        return chunks_of(self.model, batch), text

    def _text(self) -> TokenBatch:
        recipe = self.recipe
        try:
            return calibration_batch(
                self.model.evidence,
                recipe.calibration,
                recipe.calibration_samples,
                recipe.calibration_tokens,
                self.model.vocab_size,
            )
        except EvidenceMissing as missing:
            raise UsageError(str(missing)) from None

    def _planned(self, folder: WorkingFolder, chunks: list[Chunk]) -> Plan:
        """Made once a job, and kept, so that a job that goes on has the same."""
        if folder.plan.exists():
            return msgspec.json.decode(folder.plan.read_bytes(), type=Plan)
        chunks = chunks or chunks_of(self.model, self._text())
        found = make_plan(self.model, self.recipe, self._choice, chunks, folder.scratch, self.progress)
        write_whole(folder.plan, msgspec.json.encode(found))
        return found

    def _identity(self, text: dict[str, Any] | None) -> dict[str, Any]:
        """What the result depends on; the same for the same job on another day."""
        source = self.model.evidence.get("source")
        listing = hashlib.sha256(repr(sorted(source.files().items())).encode()).hexdigest()
        recipe = msgspec.to_builtins(self.recipe)
        recipe["calibration"] = Path(self.recipe.calibration).name
        return {
            "recipe": recipe,
            "method": _settings(self.recipe),
            "calibration": text,
            "source": {"files_sha256": listing, "config_sha256": _config_digest(self.model)},
            "versions": {"degarble": __version__, "torch": str(torch.__version__)},
        }

    def _walk(self, folder: WorkingFolder, chunks: list[Chunk]) -> None:
        scheme = self.recipe.quant_scheme()
        rounding = LayerRounding(
            model=self.model,
            scheme=scheme,
            schemes=self._choice.schemes,
            method=self.recipe.algorithm(),
            scale_dtype=self._choice.scale_dtype,
            wanted=self._choice.wants,
            chunks=chunks,
            scratch=folder.scratch,
            keep_plain=self._keep_plain,
            note=self._layer_notes.append,
            needs_inputs=self._needs_inputs,
            forgotten_layers=self.recipe.forgotten_layers,
        )
        first = folder.resume(chunks) if chunks else folder.layers_done()
        for index in range(first, self.model.num_layers):
            self._tell(index)
            self._plain_tensors.clear()
            self._layer_notes.clear()
            tensors: dict[str, Array] = {}
            records: list[MatrixRecord] = []
            rounding.round_layer(index, self._taker(tensors, records))
            write_layer(folder.layer(index), tensors | self._plain_tensors, records, self._layer_notes)
            if chunks:
                folder.save(chunks, index + 1)
        self._tell(self.model.num_layers)

    def _keep_plain(self, parameter: str, values: torch.Tensor) -> None:
        """A plain weight that a fold changed, under its name in the file."""
        module = self.model.weights.module_of(parameter)
        role = "bias" if parameter.endswith(".bias") and module is not None and "bias" in module.form.roles else PAYLOAD
        info = module.part(role) if module is not None else None
        assert info is not None
        array = values.numpy().astype(TENSOR_DTYPES[info.dtype])
        self._plain_tensors[info.name] = array.reshape(info.shape)

    def _tell(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, self.model.num_layers)

    def _taker(self, tensors: dict[str, Array], records: list[MatrixRecord]) -> Callable[[Site, Rounded, int], None]:
        layout, schemes, dtype = self.recipe.layout(), self._choice.schemes, self._choice.scale_dtype

        def take(site: Site, rounded: Rounded, tokens: int) -> None:
            codes = rounded.grid.encode(rounded.values)
            rounded.values = rounded.grid.decode(codes)  # the same numbers, but for the sign of zeros
            scheme = schemes[site.name]
            parts = dict(layout.tensors(rounded.grid, codes.numpy(), scheme, dtype))
            if scheme.is_static:
                parts |= layout.input_tensors(scheme, rounded.largest_input)
            tensors.update({f"{site.name}.{suffix}": array for suffix, array in parts.items()})
            bits = 8 * sum(array.nbytes for array in parts.values()) / codes.numel()
            records.append(_record(site.name, rounded, tokens, bits))

        return take

    def _assembled(self, folder: WorkingFolder) -> Report:
        source = self.model.evidence.get("source")
        layers = [folder.layer(index) for index in range(self.model.num_layers)]
        found: list[Report] = []
        ran: dict[str, Any] = {}
        usual = self.recipe.quant_scheme()
        declaration = self.recipe.layout().config(
            usual, self._choice.plain, self.recipe.algorithm().orders_columns, self._choice.others(usual)
        )

        def finish(hidden: Path, records: list[MatrixRecord]) -> None:
            missing = sorted(self._choice.wanted - {one.module for one in records})
            if missing:
                raise TargetError(
                    f"{missing[0]} and {len(missing) - 1} more were to be quantised, and no layer has them"
                )
            written = provenance(self._job, records, self._choice.plain, self._plan_table())
            base = base_model_of(self.recipe, self.model.config_values)
            (hidden / PROVENANCE).write_bytes(msgspec.json.format(msgspec.json.encode(written), indent=2) + b"\n")
            (hidden / CARD).unlink(missing_ok=True)
            (hidden / CARD).write_text(card(self.recipe, source, base, _bits(records)), encoding="utf-8")
            prove_values(hidden, records)
            found.append(judged(hidden, source))
            ran.update(smoke(hidden, self.model))

        records = assemble(
            self.model.evidence, layers, declaration, self.out, finish, self.recipe.layout().files(declaration)
        )
        folder.remove()
        target = dataclasses.replace(target_of(self.model), path=str(self.out), formats=found[0].target.formats)
        return dataclasses.replace(found[0], target=target, comparison=self._table(records) | {"smoke": ran})

    def _plan_table(self) -> dict[str, Any] | None:
        """What the plan gave whom: weights by scheme, and what it is to cost."""
        if self._plan is None:
            return None
        counts: Counter[str] = Counter()
        for unit in self._plan.units:
            size = unit.group_sizes[unit.chosen]
            counts[unit.schemes[unit.chosen] + (f" g{size}" if size else "")] += unit.weights
        table: dict[str, Any] = msgspec.to_builtins(self._plan)
        return {**table, "weights_by_scheme": dict(counts.most_common())}

    def _table(self, records: list[MatrixRecord]) -> dict[str, Any]:
        return {
            "kind": "quantize",
            "scheme": self.recipe.scheme,
            "method": self.recipe.method,
            "matrices": len(records),
            "bits": _bits(records),
            "calibration": self._job["calibration"],
            "left_plain": list(self._choice.plain),
            "worst": [_row(one) for one in sorted(records, key=lambda one: -one.error)[:MAX_LISTED]],
            "notes": [
                *(note for one in records for note in one.layer_notes),
                *(f"{one.module}: {note}" for one in records for note in one.notes),
            ],
            "plan": self._plan_table(),
            "verified": "values bit for bit; check; run once",
        }


def _record(name: str, rounded: Rounded, tokens: int, bits: float) -> MatrixRecord:
    whole = max(float(rounded.norms.sum()), torch.finfo(torch.float32).tiny)
    rows, columns = rounded.values.shape
    return MatrixRecord(
        module=name,
        shape=(rows, columns),
        tokens=tokens,
        error=(max(float(rounded.losses.sum()), 0.0) / whole) ** 0.5,
        plain_error=(max(float(rounded.plain_losses.sum()), 0.0) / whole) ** 0.5,
        bits=bits,
        digest=digest_of(rounded.values.numpy()),
        notes=tuple(rounded.notes),
    )


def _bits(records: list[MatrixRecord]) -> float:
    weights = sum(one.shape[0] * one.shape[1] for one in records)
    return sum(one.bits * one.shape[0] * one.shape[1] for one in records) / weights


def _row(one: MatrixRecord) -> dict[str, Any]:
    return {"module": one.module, "error": one.error, "plain_error": one.plain_error, "tokens": one.tokens}


def _settings(recipe: Recipe) -> dict[str, Any]:
    """The numbers of a method that decide its result."""
    method = recipe.algorithm()
    return {"name": method.name} | ({} if not dataclasses.is_dataclass(method) else dataclasses.asdict(method))


def _config_digest(model: WalkedModel) -> str:
    return hashlib.sha256(model.evidence.get("source").read("config.json")).hexdigest()
