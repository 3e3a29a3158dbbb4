"""Tests on the real model, SmolLM2-135M-Instruct."""
