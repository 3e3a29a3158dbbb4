"""Faults of endpoints: scripted changes of what a healthy stand-in answers, the opposites of the rules of `checks/endpoint`."""
