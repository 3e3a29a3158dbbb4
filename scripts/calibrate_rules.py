"""Remake docs/calibration.md: healthy statistics, bounds, false alarms and power of the rules that judge by numbers.

    python scripts/healthy_forms.py                  our own forms of the real model, and random models
    python scripts/calibration/tools.py TOOL         forms by other tools, each in an environment that has the tool
    python scripts/calibrate_rules.py measure        every checkpoint in `.work/healthy`, and the golden ones; kept
    python scripts/calibrate_rules.py power          planted faults; kept
    python scripts/calibrate_rules.py page           the page

`measure` and `power` keep one JSON file a checkpoint in `.work/healthy/measured` and go on where they stopped; remove
the folder after a change of rules.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.calibration.measuring import measure_all
from scripts.calibration.page import write_page
from scripts.calibration.power import power_all


def main(words: list[str]) -> None:
    """One step, or all of them."""
    for word in words or ["measure", "power", "page"]:
        {"measure": measure_all, "power": power_all, "page": write_page}[word]()


if __name__ == "__main__":
    main(sys.argv[1:])
