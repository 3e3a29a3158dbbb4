"""Commands that need torch; they import it only when they run."""
