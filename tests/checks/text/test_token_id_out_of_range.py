"""TOK403: ids against rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.checks.text.family_files import in_model
from tests.checks.text.text_findings import findings, in_folder
from tests.tokenizer.small_tokenizers import added, byte_level

IDS = len(byte_level()["model"]["vocab"]) + 3


def test_added_token_past_the_rows() -> None:
    (finding,) = findings("TOK403", in_model(byte_level(), IDS - 2))
    assert (finding.location.file, finding.location.token_id) == ("tokenizer.json", IDS - 2)
    assert finding.measured["tokens"] == 2 and len(finding.all_places) == 2


@pytest.mark.parametrize("at", [IDS, 10**18, -2])
@pytest.mark.parametrize("file", ["config", "generation_config"])
def test_role_past_the_rows(file: str, at: int) -> None:
    (finding,) = findings("TOK403", in_model(byte_level(), IDS, **{file: {"image_token_id": at}}))
    assert (finding.location.file, finding.location.token_id) == (f"{file}.json", at)


def test_listing_past_the_rows() -> None:
    found = findings("TOK403", in_model(byte_level(), IDS, added_tokens={f"<{n}>": IDS + n for n in range(50)}))
    assert len(found) == 1 and found[0].measured["tokens"] == 50


@pytest.mark.parametrize("config", [{}, {"pad_token_id": -1}, {"eos_token_id": [True, None, "7"]}, {"bos_token_id": 0}])
def test_silent(config: Any) -> None:
    assert not findings("TOK403", in_model(byte_level(), IDS, config=config))
    assert not findings("TOK403", in_model(byte_level(), IDS + 1000))


def test_no_embedding_is_no_verdict() -> None:
    document = byte_level()
    document["added_tokens"].append(added(IDS + 10**6, "<far>", special=True))
    assert not in_folder("TOK403", document)
