"""The gate for CI: which tasks changed, whether they are right, and whether a row got slower."""
