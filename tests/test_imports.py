"""What importing costs: the core never loads torch, and small commands load next to nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "safetensors", "tokenizers", "httpx", "huggingface_hub")


def modules_after(code: str) -> set[str]:
    """Names of all modules that a fresh interpreter holds after running the code."""
    script = f"{code}\nimport sys\nprint('\\n'.join(sorted(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(shown.stdout.split())


def test_import_loads_only_the_name() -> None:
    loaded = modules_after("import degarble")
    assert not {"numpy", "rich", "typer", "msgspec"} & loaded


def test_every_module_of_the_core_imports_without_torch() -> None:
    loaded = modules_after(
        "import degarble, pkgutil, importlib\n"
        "for m in pkgutil.walk_packages(degarble.__path__, 'degarble.'):\n"
        "    if not m.name.endswith('__main__'): importlib.import_module(m.name)"
    )
    assert not {"torch", "transformers"} & loaded
    assert "degarble.cli.app" in loaded


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--version"], ("typer", "rich", "numpy", "msgspec")),
        (["rules"], ("numpy", *HEAVY)),
        (["explain", "CKP101"], ("numpy", *HEAVY)),
        (["--help"], ("numpy", *HEAVY)),
        (["check", "--help"], ("numpy", *HEAVY)),
    ],
)
def test_small_commands_load_little(arguments: list[str], absent: tuple[str, ...]) -> None:
    code = (
        "import sys, io, contextlib, os\n"
        "os._exit = sys.exit\n"
        f"sys.argv = ['degarble', *{arguments!r}]\n"
        "from degarble.__main__ import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    try: main()\n"
        "    except SystemExit as end: assert not end.code, end.code"
    )
    assert not set(absent) & modules_after(code)


def test_check_loads_nothing_heavy(golden) -> None:  # type: ignore[no-untyped-def]
    loaded = modules_after(f"from degarble import check\nassert check({str(golden / 'base-bf16')!r}).status != 'error'")
    assert (set(HEAVY) - {"tokenizers"}) & loaded == set(), "tokenizers runs stored normalisers and cuts: 20 ms"
