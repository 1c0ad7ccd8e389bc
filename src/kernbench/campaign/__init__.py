"""`kernbench campaign`: an agent works through many tasks, each in a worktree; confirmed bests go to the checkout."""
