"""One module per format of other suites: recognizes a problem by its syntax, and says what a task of it consists of."""
