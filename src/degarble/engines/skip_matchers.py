"""The ways engines compare a skip-list entry with a module name: one builder a rule.

Names are module paths as they stand on disk (`model.layers.3.mlp.gate_proj`), entries are strings of a configuration.
A builder takes the entries and returns the predicate "is this module skipped?". Which engine uses which rule is data:
`data/engines/skip_readings.toml`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import translate

from degarble.engines.pattern_set import Pattern, Predicate, compile_patterns, contains_any

_BOUNDARY = r"(?:$|(?=[.])|(?<=[.]))"
_WILDCARDS = frozenset("*?[")
_MLA_PARTS = frozenset({"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"})
"""Last components that SGLang looks for inside a fused name such as `fused_qkv_a_proj_with_mqa`."""


def exact(entries: Sequence[str]) -> Predicate:
    """The entry is the whole name."""
    return frozenset(entries).__contains__


def exact_or_experts(entries: Sequence[str]) -> Predicate:
    """Exact, and the experts of a layer are one module: an entry that names one of them skips them all."""
    return _experts_as_one(entries, exact(entries))


def exact_or_regex(entries: Sequence[str]) -> Predicate:
    """The whole name, or, after `re:`, a regular expression that matches from the start of the name."""
    whole = frozenset(entry for entry in entries if not entry.startswith("re:"))
    matches = compile_patterns([Pattern(entry, entry[3:]) for entry in entries if entry.startswith("re:")])
    return lambda name: name in whole or matches(name)


def substring(entries: Sequence[str]) -> Predicate:
    """The entry occurs anywhere in the name: `mlp.gate` also skips `mlp.gate_up_proj`."""
    return contains_any(entries)


def substring_any_root(entries: Sequence[str]) -> Predicate:
    """As substring, with and without a leading `model.`; the experts of a layer are one module."""
    rooted = _with_both_roots(entries)
    return _experts_as_one(rooted, contains_any(rooted))


def dot_boundary(entries: Sequence[str]) -> Predicate:
    """The entry, with or without a leading `model.`, is a run of whole components of the name.

    Trailing dots of an entry do not count; the experts of a layer are one module.
    """
    rooted = _with_both_roots(entries)
    runs = contains_any([f".{entry.rstrip('.')}." for entry in rooted])
    return _experts_as_one(rooted, lambda name: runs(f".{name.rstrip('.')}."))


def dot_boundary_strict(entries: Sequence[str]) -> Predicate:
    """As dot-boundary, but an entry with a trailing dot (`model.layers.34.`) matches nothing."""
    rooted = _with_both_roots(entries)
    runs = contains_any([f".{entry}." for entry in rooted])
    return _experts_as_one(rooted, lambda name: runs(f".{name}."))


def prefix_or_suffix(entries: Sequence[str]) -> Predicate:
    """A regular expression from the start of the name *without* end, or the plain end of the name.

    `model.layers.1` therefore also skips layer 10, and `model.layers.0.mlp.gate` skips `gate_proj`.
    """
    matches, ends = compile_patterns([Pattern(entry, entry) for entry in entries]), tuple(entries)
    return lambda name: name.endswith(ends) or matches(name)


def prefix_boundary_or_suffix(entries: Sequence[str]) -> Predicate:
    """As prefix-or-suffix, but the expression has to stop at a dot or at the end. The suffix still needs no dot."""
    matches, ends = compile_patterns([Pattern(entry, entry) for entry in entries], _BOUNDARY), tuple(entries)
    return lambda name: name.endswith(ends) or matches(name)


def leaf_or_ancestor(entries: Sequence[str]) -> Predicate:
    """The last component, the whole name, or, followed by a dot, anywhere in the name."""
    whole, inside = frozenset(entries), contains_any([f"{entry}." for entry in entries])
    return lambda name: name in whole or name.rpartition(".")[2] in whole or inside(name)


def component_or_prefix(entries: Sequence[str]) -> Predicate:
    """One component of the name, or a run of components from its start."""
    whole = frozenset(entries)
    deepest = max((entry.count(".") for entry in entries), default=-1) + 1

    def skipped(name: str) -> bool:
        parts = name.split(".")
        if not whole.isdisjoint(parts):
            return True
        return any(".".join(parts[:length]) in whole for length in range(2, min(deepest, len(parts)) + 1))

    return skipped


def substring_or_wildcard(entries: Sequence[str]) -> Predicate:
    """Anywhere in the name, or a shell wildcard (`*`, `?`, `[…]`) for the whole name."""
    inside = contains_any(entries)
    starts = tuple(entry[:-1] for entry in entries if entry.endswith("*") and not _WILDCARDS & set(entry[:-1]))
    others = [entry for entry in entries if _WILDCARDS & set(entry) and entry[:-1] not in starts]
    matches = compile_patterns([Pattern(entry, translate(entry)) for entry in others])
    return lambda name: name.startswith(starts) or inside(name) or matches(name)


def wildcard_or_component(entries: Sequence[str]) -> Predicate:
    """A wildcard (`*`) for the whole name, the name without `language_model.`, or any one component."""
    matches = compile_patterns([Pattern(entry, _starred(entry)) for entry in entries], r"\Z")
    dotless = [Pattern(entry, _starred(entry)) for entry in entries if "." not in entry]
    matches_part = compile_patterns(dotless, r"\Z")
    in_leaf = contains_any([leaf for entry in entries if (leaf := entry.rpartition(".")[2]) in _MLA_PARTS])

    def skipped(name: str) -> bool:
        if matches(name) or in_leaf(name.rpartition(".")[2]):
            return True
        if name.startswith("language_model.") and matches(name.removeprefix("language_model.")):
            return True
        return bool(dotless) and any(matches_part(part) for part in name.split("."))

    return skipped


def signed_regex(entries: Sequence[str]) -> Predicate:
    """Keys of a GPTQ `dynamic` table: the first that matches decides; `-:` skips, `+:` or no sign keeps."""
    patterns = [Pattern(entry, entry.removeprefix("-:").removeprefix("+:")) for entry in entries]
    may_skip = compile_patterns([pattern for pattern in patterns if pattern.entry.startswith("-:")])
    rules = [(pattern.entry.startswith("-:"), compile_patterns([pattern])) for pattern in patterns]
    if all(skips for skips, _ in rules):
        return may_skip
    return lambda name: may_skip(name) and next((skips for skips, matches in rules if matches(name)), False)


def _starred(entry: str) -> str:
    """Dots are literal, a star is anything; every other sign keeps its meaning in a regular expression."""
    return ".*".join(piece.replace(".", r"\.") for piece in entry.split("*"))


def _with_both_roots(entries: Sequence[str]) -> list[str]:
    """SGLang drops a leading `model.` and puts it back, and uses both."""
    bare = [entry.removeprefix("model.") for entry in entries]
    return bare + [f"model.{entry}" for entry in bare]


def _experts_as_one(entries: Sequence[str], predicate: Predicate) -> Predicate:
    """Judge an expert by its stack (`…mlp.experts`): skipped if the stack is, or if an entry names one of it."""
    naming_experts = [entry for entry in entries if "experts" in entry]
    by_stack: dict[str, bool] = {}

    def skipped(name: str) -> bool:
        head, found, _ = f".{name}.".partition(".experts.")
        if not found:
            return predicate(name)
        if head not in by_stack:
            stack = f"{head}.experts"[1:]
            by_stack[head] = predicate(stack) or any(stack in entry for entry in naming_experts)
        return by_stack[head]

    return skipped


RULES: dict[str, Callable[[Sequence[str]], Predicate]] = {
    "exact": exact,
    "exact-or-experts": exact_or_experts,
    "exact-or-regex": exact_or_regex,
    "substring": substring,
    "substring-any-root": substring_any_root,
    "dot-boundary": dot_boundary,
    "dot-boundary-strict": dot_boundary_strict,
    "prefix-or-suffix": prefix_or_suffix,
    "prefix-boundary-or-suffix": prefix_boundary_or_suffix,
    "leaf-or-ancestor": leaf_or_ancestor,
    "component-or-prefix": component_or_prefix,
    "substring-or-wildcard": substring_or_wildcard,
    "wildcard-or-component": wildcard_or_component,
    "signed-regex": signed_regex,
}
"""Every rule that `data/engines/skip_readings.toml` may name."""
