"""`kernbench demo`: a task that shows the loop, and a tour of one minute."""
