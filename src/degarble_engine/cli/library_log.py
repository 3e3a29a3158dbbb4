"""What the libraries below say of their own accord."""

from __future__ import annotations

import logging


def only_errors() -> None:
    """transformers' advice about kernels and generation is not the user's business here."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
