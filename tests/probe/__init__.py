"""Endpoints: what is asked, how answers are read, what is found."""
