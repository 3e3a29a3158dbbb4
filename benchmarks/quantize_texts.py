"""Text for calibration and evaluation of quantisers: docstrings of the running Python's standard library, in two halves.

    python benchmarks/quantize_texts.py MODEL OUT --calibration 128x512 --evaluation 16x512

Modules are taken in alphabetical order, the first, third, … for calibration, the second, fourth, … for evaluation, so no
docstring is in both. Docstrings are read from sources, never imported; those of one half are joined by empty lines,
encoded by the model's tokenizer and cut into sequences of equal length, spread evenly over all that there are. OUT gets
`calibration.jsonl` and `evaluation.jsonl`, a sequence a line under `ids`, with the text under `text` for tools that
encode for themselves.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path


def modules() -> list[Path]:
    """Source files of the standard library's modules, packages by all their files, tests left out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found: list[Path] = []
    for name in sorted(sys.stdlib_module_names):
        if (root / f"{name}.py").is_file():
            found.append(root / f"{name}.py")
        elif (root / name).is_dir():
            found.append(root / name)
    return found


def docstrings(module: Path) -> Iterator[str]:
    """All of one module, in the order of its source."""
    files = [module] if module.is_file() else sorted(module.rglob("*.py"))
    for file in files:
        if "test" in file.parts or "tests" in file.parts:
            continue
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node)
                if text:
                    yield text


def sequences(half: int, tokenizer: object, count: int, tokens: int) -> list[list[int]]:
    """`count` sequences of equal length, spread evenly over the half."""
    text = "\n\n".join(text for module in modules()[half::2] for text in docstrings(module))
    ids = tokenizer.encode(text).ids  # type: ignore[attr-defined]
    pieces = len(ids) // tokens
    if pieces < count:
        raise SystemExit(f"this Python's docstrings give {pieces} sequences of {tokens} tokens, {count} were asked for")
    return [ids[at * tokens : (at + 1) * tokens] for at in (number * pieces // count for number in range(count))]


def main() -> None:
    """Write both files."""
    from tokenizers import Tokenizer

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--calibration", default="128x512")
    parser.add_argument("--evaluation", default="16x512")
    options = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(Path(options.model) / "tokenizer.json"))
    options.out.mkdir(parents=True, exist_ok=True)
    for half, name in enumerate(("calibration", "evaluation")):
        count, tokens = (int(one) for one in getattr(options, name).split("x"))
        found = sequences(half, tokenizer, count, tokens)
        lines = [json.dumps({"ids": ids, "text": tokenizer.decode(ids)}) for ids in found]
        (options.out / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        print(f"{name}: {count} sequences of {tokens} tokens")


if __name__ == "__main__":
    main()
