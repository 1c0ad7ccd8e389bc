"""Inputs and truth of a case, and their memory layout."""
