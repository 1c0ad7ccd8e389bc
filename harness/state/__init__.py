"""What a source may leave behind in the worker's process: settings, replaced functions, changed opponents."""
