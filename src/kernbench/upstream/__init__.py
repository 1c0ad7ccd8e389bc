"""What leaves for another repository: `port`, its checks, and what models say about the source before it does."""
