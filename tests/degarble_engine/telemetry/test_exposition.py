"""The text format, read back by its own grammar."""

from __future__ import annotations

from degarble_engine.telemetry.exposition import Counter, Histogram, Read


def test_counters_show_their_labels_escaped() -> None:
    counter = Counter("a_total", "Line one\nand \\ two.", "reason", ["x"])
    counter.add(2, 'say "no"\n')
    assert list(counter.show({"engine": "0"})) == [
        "# HELP a_total Line one\\nand \\\\ two.",
        "# TYPE a_total counter",
        'a_total{engine="0",reason="x"} 0',
        'a_total{engine="0",reason="say \\"no\\"\\n"} 2',
    ]


def test_buckets_are_cumulative_and_their_bounds_belong_to_them() -> None:
    histogram = Histogram("h", "Sizes.", (1, 2.5))
    for value in (1, 1.5, 2.5, 99):
        histogram.observe(value)
    assert list(histogram.show({}))[2:] == [
        'h_bucket{le="1"} 1', 'h_bucket{le="2.5"} 3', 'h_bucket{le="+Inf"} 4', "h_sum 104", "h_count 4"
    ]  # fmt: skip


def test_a_gauge_is_read_when_it_is_shown() -> None:
    held = [0.25]
    gauge = Read("g", "Share.", lambda: held[0])
    held[0] = 0.5
    assert list(gauge.show({}))[2] == "g 0.5"
