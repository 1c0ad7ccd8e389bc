"""Checks that a call is correct and its time honest."""
