"""A measuring half without torch, for tests of the engine: it reads its times from the kernel's own text."""
