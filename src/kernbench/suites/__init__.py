"""Problems of other suites: which format a file has, and the task made of it. Foreign code is never run here."""
