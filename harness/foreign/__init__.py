"""Problems of other suites, as reference.py of an imported task loads them: one module per format."""
