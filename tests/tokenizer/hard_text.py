"""Text made of everything that the sanitiser has a rule for."""

from __future__ import annotations

from hypothesis import strategies as st

SPECIALS = ("<|a|>", "<K>", "<K>H", "|>H", "<\u00e1>")
ALPHABET = (
    "ae<>|KH \n\x00\x07\u0301\u0323\u0344\u212a\u1100\u1161\u11a8\uac00\u0958\u0f43\u200d\u200c\u200b\ufe0f\ue000\uf8ff"
    "\U0001f3f4\U000e0067\U000e007f\U000e0041\u202e\ud83d\ude00\ufdd0\uffff\U0001f469\u4f60\u0915\u093c\u09c7\u09be\u0f73"
    "\U000e0100\U000f0000\U0001d15e\U0001d165\U00011099\U000110ba\u0338"
)
_parts = st.one_of(st.text(ALPHABET, max_size=12), st.sampled_from(SPECIALS), st.text("e\u0301\u0344", max_size=45))
hard_text = st.lists(_parts, max_size=8).map("".join)
