"""`kernbench doctor`: checks of the installation and of a repository."""
