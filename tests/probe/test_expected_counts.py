"""What a checkpoint's tokenizer says of the prompts, against the library that owns the format."""

from __future__ import annotations

from tokenizers import Tokenizer

from degarble.endpoint import expected_in, probe
from degarble.endpoint_faults.fake_endpoint import FakeEndpoint
from degarble.probe.exchange import Kind
from degarble.probe.prompts import prompts
from tests.conftest import unpacked_golden
from tests.probe.endpoints import LIMITS, URL

FOLDER = unpacked_golden() / "base-bf16"


def test_counts_are_the_librarys() -> None:
    library = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    expected = expected_in(str(FOLDER))
    assert {key for key in expected.counts if key.startswith("chat")} == {f"chat {text}" for text in prompts().counted}
    for text in prompts().counted:
        assert expected.counts[f"{Kind.TEXT} {text}"] == len(library.encode(text).ids)


def test_an_endpoint_with_this_tokenizer_and_one_that_adds_bos() -> None:
    counts = expected_in(str(FOLDER)).counts
    for surplus in (0, 1):
        endpoint = FakeEndpoint()
        endpoint.prompt_tokens = lambda question, count, more=surplus: (
            counts.get(f"{question.kind} {question.prompt}", 9) + more
        )  # type: ignore[misc]
        report = probe(
            URL, tokenizer=str(FOLDER), limits=LIMITS, transport=endpoint.transport(), select_rules=("RUN805",)
        )
        assert [finding.rule for finding in report.findings] == ["RUN805"] * 2 * surplus


def test_a_checkpoint_without_a_tokenizer(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "config.json").write_text("{}")
    report = probe(URL, tokenizer=str(tmp_path), limits=LIMITS, transport=FakeEndpoint().transport())
    assert report.exit_code() == 2 and "--tokenizer" in (report.failure or "")
