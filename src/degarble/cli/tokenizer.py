"""`degarble tokenizer verify|stress|sanitize`: conformance, pressure test, and a filter for text."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from degarble.cli.output import write_text
from degarble.errors import EvidenceMissing, UsageError

if TYPE_CHECKING:
    from degarble.tokenizer.interface import Tokenizer

SCHEMA_VERSION = 1
CHUNK_BYTES = 1 << 16
COMPARED = ("exact", "decode-stream", "naive")
HEADINGS = {
    "num_texts": "texts",
    "num_ids": "ids",
    "naive_percent_damaged": "naive %",
    "naive_per_100_chars": "naive/100",
    "exact_percent_damaged": "exact %",
    "num_different": "differ",
    "num_late_chars": "late",
    "us_per_token": "µs/token",
    "percent_round_trip": "trip %",
    "num_answered": "answered",
    "percent_damaged": "damaged %",
    "per_100_chars": "per 100",
    "percent_equal": "equal %",
}
"""Of the text tables, which fit 100 columns; the machine forms have the long names."""
"""Decoders in the table where none is named; the last two are known to be wrong and do not set the status."""

Target = Annotated[str, typer.Argument(help="Folder, tokenizer.json, tokenizer.model, .gguf file or hf:org/name.")]
Format = Annotated[str, typer.Option("--format", help="text or json.")]
Output = Annotated[str | None, typer.Option("--output", "-o", help="Write the result there.", metavar="FILE")]
Seed = Annotated[int, typer.Option(help="Another seed gives other texts.")]


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help="Tokenizer conformance, mojibake pressure test, sanitiser.", no_args_is_help=True)
    group.command("verify")(verify)
    group.command("stress")(stress)
    group.command("sanitize")(sanitize)
    app.add_typer(group, name="tokenizer")


def verify(
    target: Target,
    reference: Annotated[
        str | None,
        typer.Option("--reference", help="A healthy tokenizer to compare ids and bytes with.", metavar="DIR"),
    ] = None,
    decoder: Annotated[
        list[str] | None,
        typer.Option(
            help="exact, naive, decode-stream, whole, transformers, or module:function (ids -> text or deltas)."
        ),
    ] = None,
    count: Annotated[int, typer.Option(help="Texts in each corpus.")] = 84,
    seed: Seed = 0,
    format: Format = "text",
    output: Output = None,
) -> int:
    """Compare decoders with the byte stream, and a tokenizer with its reference. Status 1: a named one disagrees."""
    from degarble.tokenizer.decoders import open_decoder
    from degarble.tokenizer.load import load_tokenizer
    from degarble.tokenizer.verify import compare_tokenizers, samples_for, verify_decoder

    _check(format, count)
    tokenizer = load_tokenizer(target)
    samples = samples_for(tokenizer, seed=seed, count=count)
    rows = []
    skipped: dict[str, str] = {}
    for name in decoder or COMPARED:
        try:
            rows.append(verify_decoder(name, open_decoder(name, tokenizer, target), tokenizer, samples))
        except EvidenceMissing as reason:
            if decoder:
                raise
            skipped[name] = str(reason)
    differences = compare_tokenizers(tokenizer, load_tokenizer(reference), samples) if reference else []
    wrong = [row for row in rows if row.num_exact < row.num_sequences and (decoder or row.decoder == "exact")]
    document = {"decoders": rows, "skipped": skipped, "differences": differences, "problems": list(tokenizer.problems)}
    _write("verify", target, tokenizer, document, format, output, _verify_text)
    return int(bool(wrong or differences))


def stress(
    target: Annotated[str | None, typer.Argument(help="As for verify; not needed with --endpoint.")] = None,
    endpoint: Annotated[
        str | None,
        typer.Option("--endpoint", help="An OpenAI-compatible server, instead of a tokenizer.", metavar="URL"),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model name at the endpoint; its first one if not given.")] = None,
    count: Annotated[int | None, typer.Option(help="Texts in each corpus: 84 for a tokenizer, 4 for a server.")] = None,
    seed: Seed = 0,
    format: Format = "text",
    output: Output = None,
) -> int:
    """Send hard texts through a stream and count what breaks. Status 1: damage on ids or text that were valid."""
    _check(format, count or 1)
    if (target is None) == (endpoint is None):
        raise UsageError("tokenizer stress: give either a tokenizer or --endpoint URL")
    if endpoint is not None:
        from degarble.tokenizer.stress_endpoint import stress_endpoint

        answers = stress_endpoint(endpoint, model, seed=seed, count=count or 4)
        _write("stress", endpoint, None, {"rows": answers}, format, output, _rows_text)
        return int(any(answer.percent_damaged for answer in answers))
    from degarble.tokenizer.load import load_tokenizer
    from degarble.tokenizer.stress import stress as run

    tokenizer = load_tokenizer(str(target))
    rows = run(tokenizer, seed=seed, count=count or 84)
    _write("stress", str(target), tokenizer, {"rows": rows}, format, output, _rows_text)
    return int(any(row.num_different or row.num_late_chars for row in rows))


def sanitize(
    file: Annotated[str, typer.Argument(help="A text file; - is standard input.")] = "-",
    policy: Annotated[str, typer.Option(help="normalise, drop, replace or reject.")] = "normalise",
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", help="Also look for the text of this tokenizer's special tokens.")
    ] = None,
    keep_controls: Annotated[str, typer.Option(help=r"Control characters that stay, as escapes.")] = r"\t\n\r",
    max_private_use: Annotated[int, typer.Option(help="Private-use characters that stay.")] = 2,
    report: Annotated[
        str | None, typer.Option("--report", help="Write what was changed, with positions, as JSON.", metavar="FILE")
    ] = None,
    output: Output = None,
) -> int:
    """Clean text: composed form, no control, override, hidden or invalid characters. Status 1: it was rejected."""
    from degarble.tokenizer.sanitize import SanitizePolicy, SanitizeRejected, TokenSanitizer

    specials: tuple[str, ...] = ()
    if tokenizer is not None:
        from degarble.tokenizer.load import load_tokenizer

        added = load_tokenizer(tokenizer).added_tokens.values()
        specials = tuple(token.content for token in added if token.content.strip())
    chosen = SanitizePolicy.preset(
        policy, keep_controls=_unescape(keep_controls), max_private_use=max_private_use, special_tokens=specials
    )
    try:
        if file == "-":
            return _filter(sys.stdin.buffer, TokenSanitizer(chosen), report, output)
        with open(file, "rb") as stream:
            return _filter(stream, TokenSanitizer(chosen), report, output)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except SanitizeRejected as rejected:
        sys.stderr.write(f"degarble: rejected: {rejected}\n")
        return 1


def _filter(source: IO[bytes], sanitizer: Any, report: str | None, output: str | None) -> int:
    """Chunks in, chunks out; bytes that are no UTF-8 come in as lone surrogates and meet the policy for these."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    stream = sanitizer.stream()
    parts: list[str] = []
    while chunk := source.read(CHUNK_BYTES):
        parts.append(stream.push(decoder.decode(chunk)))
    parts.append(stream.finish(decoder.decode(b"", True)))
    _write_bytes("".join(parts), output)
    changes, counts = stream.changes, dict(stream.counts)
    if counts:
        total = ", ".join(f"{kind} {number}" for kind, number in sorted(counts.items()))
        sys.stderr.write(f"degarble: changed or seen: {total}\n")
    if report is not None:
        import msgspec

        shown = [{**msgspec.to_builtins(change), "old": _escaped(change.old)} for change in changes]
        document = {"schema_version": SCHEMA_VERSION, "counts": counts, "changes": shown}
        write_text(msgspec.json.format(msgspec.json.encode(document)).decode() + "\n", report)
    return 0


def _write_bytes(text: str, output: str | None) -> None:
    """Text as it is: no newline is translated, whatever the platform."""
    if output is None or output == "-":
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
    else:
        write_text(text, output)


def _escaped(text: str) -> str:
    """Lone surrogates cannot be written; `\\udcff` can."""
    return text.encode("utf-8", "backslashreplace").decode()


def _unescape(text: str) -> str:
    for escape, char in ((r"\t", "\t"), (r"\n", "\n"), (r"\r", "\r"), (r"\f", "\f")):
        text = text.replace(escape, char)
    return text


def _check(format: str, count: int) -> None:
    if format not in ("text", "json"):
        raise UsageError(f"--format {format!r}: text or json")
    if not 1 <= count <= 100_000:
        raise UsageError(f"--count {count}: from 1 to 100,000")


def _write(
    command: str,
    target: str,
    tokenizer: Tokenizer | None,
    result: dict[str, Any],
    format: str,
    output: str | None,
    as_text: Callable[[dict[str, Any]], str],
) -> None:
    import msgspec

    from degarble.version import __version__

    plain = msgspec.to_builtins(result)
    head = f"{target}: {tokenizer.file}, {tokenizer.kind}, {tokenizer.num_ids} ids" if tokenizer else target
    if format == "text":
        write_text(f"{head}\n{as_text(plain)}", output)
        return
    facts = {"file": tokenizer.file, "kind": tokenizer.kind, "num_ids": tokenizer.num_ids} if tokenizer else None
    document = {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "degarble", "version": __version__},
        "command": f"tokenizer {command}",
        "target": target,
        "tokenizer": facts,
        **plain,
    }
    write_text(msgspec.json.format(msgspec.json.encode(document)).decode() + "\n", output)


def _rows_text(result: dict[str, Any]) -> str:
    rows: Sequence[dict[str, Any]] = result["rows"]
    heading = [HEADINGS.get(key, key) for key in rows[0]]
    return _table([heading, *(["–" if value is None else value for value in row.values()] for row in rows)])


def _verify_text(result: dict[str, Any]) -> str:
    columns = ("decoder", "num_exact", "num_sequences", "num_raised", "num_late_chars")
    text = _table([list(columns), *([row[column] for column in columns] for row in result["decoders"])])
    for row in result["decoders"]:
        if first := row["first"]:
            text += (
                f"\n{row['decoder']} first disagrees in {first['corpus']}, position {first['position']}: "
                f"{first['reason']}\n  ids {first['ids']}\n  bytes {' '.join(first['bytes_hex'])}\n"
                f"  expected {first['expected']!r}\n  found    {first['found']!r}\n"
            )
    text += "".join(f"\n{name} skipped: {reason}\n" for name, reason in result["skipped"].items())
    text += "".join(f"\nproblem: {problem}\n" for problem in result["problems"])
    for item in result["differences"]:
        text += f"\n{item['kind']}: {item['place']}: {item['found']}, the reference has {item['expected']}\n"
    return text


def _table(rows: Sequence[Sequence[object]]) -> str:
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    lines = (
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines) + "\n"
