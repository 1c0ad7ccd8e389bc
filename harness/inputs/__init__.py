"""Inputs and truth of a case, and the memory they live in."""
