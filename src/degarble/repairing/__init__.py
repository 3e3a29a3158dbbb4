"""Deciding which repairs run, proving that they helped, writing the result, and taking it back."""
