"""Faults for a running engine, so that guards and diagnosis can be tested where they work: `degarble serve --inject`."""
