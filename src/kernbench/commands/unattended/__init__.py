"""Commands that work without a user in front of them: suites, sweeps, CI, agents."""
