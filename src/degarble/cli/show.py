"""`degarble show TENSOR TARGET`: one module drawn in the terminal, beside its peers in other layers."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from degarble.errors import TargetError, UsageError

BARS = " ▁▂▃▄▅▆▇█"
WIDTH = 72


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("show")(show)


def show(
    tensor: Annotated[str, typer.Argument(help="A module or tensor name, as in the file.")],
    target: Annotated[str, typer.Argument(help="Folder, .safetensors or .gguf file.")],
) -> int:
    """Draw a module's codes or values, and where it stands among the same module of other layers."""
    from degarble.evidence import Evidence, Settings
    from degarble.target import open_target

    evidence = Evidence(open_target(target), Settings())
    modules = evidence.find("modules")
    if modules is None:
        raise TargetError(f"{target}: no tensors could be read")
    module = _find(tensor, modules)
    profiles = evidence.get("module_profiles")
    if module.name not in profiles:
        raise UsageError(f"{module.name}: a vector or a tensor without values to draw")
    peers = [m for m in modules.values() if m.template == module.template and m.name in profiles]
    sys.stdout.write("\n".join(_lines(module, profiles, peers)) + "\n")
    return 0


def _find(wanted: str, modules: Mapping[str, Any]) -> Any:
    if wanted in modules:
        return modules[wanted]
    for module in modules.values():
        if any(info.name == wanted for info in module.parts.values()):
            return module
    near = [name for name in modules if wanted in name][:5]
    hint = f": did you mean {', '.join(near)}?" if near else ""
    raise UsageError(f"no module or tensor is called {wanted!r}{hint}")


def _lines(module: Any, profiles: Mapping[str, Any], peers: Sequence[Any]) -> list[str]:
    profile = profiles[module.name]
    scheme = module.form.scheme.label if module.form.scheme is not None else "plain"
    lines = [
        f"{module.name}  {module.form.format} ({scheme})  {list(module.form.shape or ())}",
        f"sample {profile.num_values} values of {profile.num_outputs} outputs"
        f"{'' if profile.is_exhaustive else ' (statistical)'}",
        f"rms {profile.values.rms:.4g}   mean {profile.values.mean:.3g}   largest {profile.values.absmax:.4g}"
        f"   zero outputs {profile.num_dead_rows}",
    ]
    if profile.codes is not None:
        lines += [
            "",
            "codes",
            f"  {bars(profile.codes.histogram)}",
            f"  0{' ' * (len(profile.codes.histogram) - 2)}^ highest",
        ]
    if profile.scales is not None and profile.scales.min_positive is not None:
        low, high = profile.scales.min_positive, profile.scales.absmax
        lines += [
            "",
            f"scales {low:.4g} .. {high:.4g}   zero {profile.scales.zeros}   not finite {profile.scales.nonfinite}",
        ]
    layered = sorted((p for p in peers if p.layer is not None), key=lambda p: (p.layer, p.expert or 0))
    if len(layered) > 1:
        heights = [_log(profiles[p.name].values.rms) for p in layered]
        mark = layered.index(module)
        lines += [
            "",
            f"rms by layer ({len(layered)} peers, log scale)",
            f"  {bars(heights)}",
            f"  {' ' * mark}^ this one",
        ]
    return lines


def bars(values: Sequence[float]) -> str:
    """One character a value, the highest for the largest; values that are not finite as `!`."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    low = min(low, 0.0) if low >= 0 else low
    span = (high - low) or 1.0
    return "".join(
        BARS[round((value - low) / span * (len(BARS) - 1))] if math.isfinite(value) else "!" for value in values
    )


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf
