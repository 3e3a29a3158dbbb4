"""The byte alphabet against the library that defines it."""

from __future__ import annotations

from tokenizers.pre_tokenizers import ByteLevel

from degarble.tokenizer.byte_alphabet import byte_letters, bytes_to_letters, letters_to_bytes


def test_it_is_the_library_s_alphabet() -> None:
    assert set(byte_letters()) == set(ByteLevel.alphabet())
    text = "".join(map(chr, range(0x800)))
    shown = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)[0][0]
    assert bytes_to_letters(text.encode()) == shown
    assert letters_to_bytes(shown) == text.encode()


def test_known_letters() -> None:
    assert bytes_to_letters(b" \n") == "Ġ\u010a"
    assert letters_to_bytes("Ġa") == b" a"


def test_characters_outside_the_alphabet() -> None:
    for outside in ("a b", "\u00ad", "\x7f", "｜", "\U0001f600"):
        assert letters_to_bytes(outside) is None
