"""Records of a latent (MLA) cache: how many bytes a token takes and where its parts lie (KVC631).

    latent-bf16      512 × bf16 latent | 64 × bf16 rotated key                                    1152 bytes
    latent-fp8-flat  576 × e4m3, the rotated key quantised too                                     576 bytes
    latent-fp8-656   512 × e4m3 latent | 4 × fp32 scales, one per 128 lanes | 64 × bf16 key        656 bytes
    latent-fp8-584   448 × e4m3 | 64 × bf16 key | 7 × e8m0 scales and 1 pad                        584 bytes

The width alone does not name a record, so a declaration has to. V is the first lanes of the same record: there is no
V tensor. Sources: FlashMLA's README (656), its tests/quant.py (584), vllm-project/vllm#56893, carlushuang/gcnasm#50.
The three quantised records hold for kv_lora_rank 512 and a rotated key of 64; other sizes scale by these formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float8_e4m3fn": 1, "uint8": 1, "float8_e8m0fnu": 1}
SCALE_LANES = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPart:
    """A run of equal items inside a record."""

    name: str
    dtype: str
    count: int

    @property
    def nbytes(self) -> int:
        """Bytes of the run."""
        return ITEM_BYTES[self.dtype] * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentRecord:
    """The parts of one token's record, in order."""

    name: str
    parts: tuple[RecordPart, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of a token and layer."""
        return sum(part.nbytes for part in self.parts)

    def offset_of(self, name: str) -> int:
        """Byte at which a part begins. Raises KeyError for a part it has not."""
        at = 0
        for part in self.parts:
            if part.name == name:
                return at
            at += part.nbytes
        raise KeyError(name)


def known_records(kv_lora_rank: int = 512, rope_dim: int = 64) -> tuple[LatentRecord, ...]:
    """Every record known, for the given sizes."""

    def record(name: str, *parts: tuple[str, str, int]) -> LatentRecord:
        made = tuple(RecordPart(name=part, dtype=dtype, count=count) for part, dtype, count in parts)
        return LatentRecord(name=name, parts=made)

    scales = -(-kv_lora_rank // SCALE_LANES)
    nope = kv_lora_rank - rope_dim
    return (
        record("latent-bf16", ("latent", "bfloat16", kv_lora_rank), ("rope", "bfloat16", rope_dim)),
        record("latent-fp8-flat", ("latent", "float8_e4m3fn", kv_lora_rank), ("rope", "float8_e4m3fn", rope_dim)),
        record(
            "latent-fp8-656",
            ("latent", "float8_e4m3fn", kv_lora_rank),
            ("scales", "float32", scales),
            ("rope", "bfloat16", rope_dim),
        ),
        record(
            "latent-fp8-584",
            ("latent", "float8_e4m3fn", nope),
            ("rope", "bfloat16", rope_dim),
            ("scales", "float8_e8m0fnu", nope // 64),
            ("pad", "uint8", 1),
        ),
    )


def find_record(name: str, kv_lora_rank: int = 512, rope_dim: int = 64) -> LatentRecord | None:
    """A record by name."""
    return next((record for record in known_records(kv_lora_rank, rope_dim) if record.name == name), None)


def records_of_width(nbytes: int, kv_lora_rank: int = 512, rope_dim: int = 64) -> Sequence[LatentRecord]:
    """Records that take so many bytes; more than one is an ambiguity, none a fault."""
    return [record for record in known_records(kv_lora_rank, rope_dim) if record.nbytes == nbytes]
