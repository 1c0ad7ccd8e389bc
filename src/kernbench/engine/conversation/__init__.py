"""What the worker's answers come to: a run as it happens, wrong rows tried again, a best confirmed."""
