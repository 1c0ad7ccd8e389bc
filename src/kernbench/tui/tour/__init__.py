"""The tour over the workbench: a small box with the next step."""
