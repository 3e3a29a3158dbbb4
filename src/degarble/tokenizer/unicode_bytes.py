"""Which byte values text in use is made of, in UTF-8."""

from __future__ import annotations

NEVER_IN_UTF8 = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})
"""Leads of overlong forms, and of what lies above U+10FFFF: no well-formed text has them."""
UNUSED_PLANES = frozenset({0xF1, 0xF2, 0xF3})
"""Leads of planes 4 to 15: no letters, only the tags of plane 14 (three flags) and the private use of plane 15."""
CONTROLS = frozenset({*range(0x20), 0x7F}) - set(b"\t\n\r")
"""Control characters that no text needs. Tab, line feed and carriage return are text."""
IN_USE = frozenset(range(256)) - NEVER_IN_UTF8 - UNUSED_PLANES - CONTROLS
"""What a tokenizer has to be able to write."""
