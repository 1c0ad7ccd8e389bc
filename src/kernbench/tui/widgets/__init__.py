"""The lines and lists that make up panes and pages."""
