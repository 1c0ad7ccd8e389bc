"""The engine (interface first; the body follows)."""
