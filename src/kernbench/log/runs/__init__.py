"""runs.jsonl: every finished run, and how runs compare."""
