"""The private names of torch and triton that the harness uses, each with what happens where a version lacks it.

Every use goes through torch_private.py or triton_private.py, so that a new version of either is tried by reading two
files. harness.cuda can be copied beside a kernel and keeps its own in harness/cuda/torch_internals.py.
"""
