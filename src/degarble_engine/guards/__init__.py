"""What looks at answers while they are made: one guard a file, each on or off, all of them counted."""
