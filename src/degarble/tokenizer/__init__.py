"""From ids to text and back without a lost byte, and text that is safe to encode or to show."""
