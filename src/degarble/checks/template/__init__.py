"""Rules on chat templates and generation settings: TPL."""
