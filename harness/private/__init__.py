"""The private names of torch and triton that the harness uses, each with the effect of a version that lacks it.

Every use goes through torch_private.py or triton_private.py, so only these two files need a look when either library
changes. harness.cuda can be copied next to a kernel, so its private names are in harness/cuda/torch_internals.py.
"""
