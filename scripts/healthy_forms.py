"""Make the healthy checkpoints that rules are calibrated on, in `.work/healthy`. Those that are there are kept.

    python scripts/healthy_forms.py            all of our own forms (about N GB)
    python scripts/healthy_forms.py WORD...    those whose name has every word

Forms by other tools: scripts/calibration/tools.py.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.calibration.forms import all_forms, write_form


def main(words: list[str]) -> None:
    """Write what is missing."""
    for form in all_forms():
        if all(word in form.name for word in words) and not form.path.exists():
            start = time.monotonic()
            write_form(form)
            print(f"{form.name}: {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
