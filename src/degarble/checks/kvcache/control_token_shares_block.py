"""KVC611: a block goes on after a control token although a policy says it ends there."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.finding import Finding, Severity
from degarble.kvcache.declaration import KVDeclaration
from degarble.kvcache.finding_of import finding_of
from degarble.kvcache.judge_records import isolation_violations
from degarble.registry import check


@check("KVC611", severity=Severity.WARNING)
def control_token_shares_block(cache_isolation: KVDeclaration, cache_file: str) -> Iterator[Finding]:
    """A block holds a control token of an isolated class and tokens after it.

    ## What it looks for
    A declaration with an `isolation` policy (control tokens by class, and the classes that end a block) and
    `sequences` with the positions at which their blocks begin. Each position after such a token must begin a block.
    The finding says what keeping the policy costs for that sequence, in blocks.

    ## Why output turns to garbage
    By itself it does not: a correct prefix cache compares all tokens of a block, and attention does not know of blocks.
    The policy is a second line of defence. Where a cache compares too little (a truncated hash, a forgotten salt), a
    block that begins with a template's marker is the one that most requests have in common, so the mistake spreads
    from there. A policy that is declared and not kept protects nobody.

    ## What you will see
    Nothing, as long as the prefix cache is right.

    ## How to tell it from its look-alikes
    Without a declared policy there is nothing to break; sharing a block with a control token is what every engine does.

    ## How to confirm
    Cut the token ids at the declared tokens and at the block size and compare with the table that the engine has.

    ## How to repair it
    End blocks after the declared classes, or drop the policy. Either is a decision, so it is not done unattended.

    ## References
    LMCache/LMCache#4086, vllm-project/vllm#44701 (keys that compare too little)
    """
    for violation in isolation_violations(cache_isolation):
        yield finding_of(violation, cache_file)
