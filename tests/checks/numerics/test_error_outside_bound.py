"""Look-alikes of NUM307: clipping that a search chose, one stray row, one module in every layer."""

from __future__ import annotations

from degarble.checks.numerics.error_outside_bound import error_outside_bound
from degarble.evidence.forward_pass import ForwardPass, Stray
from degarble.finding import Finding, Location


def stray(layer: int = 0, kind: str = "mlp.up_proj", **values: float) -> Stray:
    module = f"model.layers.{layer}.{kind}"
    healthy = {"z": 1.0, "row_z": 2.0, "coverage": 0.955, "weight_z": 1.0}
    return Stray(
        location=Location(module=module, layer=layer), module=module, kind=kind, row=7, **{**healthy, **values}
    )


def found(*strays: Stray) -> list[Finding]:
    return list(error_outside_bound(ForwardPass(strays=strays)))


def test_honest_rounding_is_silent() -> None:
    assert found(*(stray(layer, z=0.93 + 0.005 * layer, row_z=4.6) for layer in range(30))) == []


def test_exact_modules_are_silent() -> None:
    assert found(stray(z=0.0, row_z=0.0, coverage=1.0, weight_z=0.0)) == []


def test_clipping_that_meets_large_activations_is_silent_while_the_weights_agree() -> None:
    assert found(stray(z=1.42, coverage=0.878, weight_z=0.98)) == []
    assert len(found(stray(z=1.42, coverage=0.878, weight_z=1.2))) == 1


def test_a_row_is_named() -> None:
    (one,) = found(stray(), stray(1, row_z=15.6, z=1.14))
    assert one.location.layer == 1 and "row 7" in one.message


def test_a_type_in_most_layers_is_one_finding() -> None:
    bad = [stray(layer, z=3.0 + layer, coverage=0.45) for layer in range(4)]
    (one,) = found(*bad, *(stray(layer, "mlp.down_proj") for layer in range(4)))
    assert len(one.places) == 4 and one.location.layer == 3 and "up_proj of 4 layers" in one.message
    assert len(found(bad[0], bad[1], *(stray(layer) for layer in range(2, 30)))) == 2
