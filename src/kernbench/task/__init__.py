"""The folder a person edits: finding it, watching it, taking a snapshot of it."""
