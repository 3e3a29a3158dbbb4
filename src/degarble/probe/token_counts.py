"""Short texts whose number of tokens the tokenizer determines: `usage.prompt_tokens` has to be that number."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.probe.desk import Desk
from degarble.probe.exchange import Ask, Exchange
from degarble.probe.interface import Probe
from degarble.probe.prompts import prompts


class TokenCounts(Probe):
    """Every counted text, to every API that is offered."""

    name = "token-counts"
    order = 30

    def run(self, desk: Desk) -> Iterator[Exchange]:
        """One token each, since only the prompt is of interest."""
        for kind in desk.offer.kinds:
            for at, text in enumerate(prompts().counted):
                ask = Ask(kind=kind, prompt=text, max_tokens=1)
                yield desk.ask(Exchange(probe=self.name, label=f"{kind}-{at}", ask=ask))
