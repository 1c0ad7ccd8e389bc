"""What leaves for another repository: `port`, and what models say of the source before it does."""
