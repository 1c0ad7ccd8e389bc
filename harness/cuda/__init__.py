"""`load("solution.cu")`: CUDA C++ through NVRTC, ready to be launched with tensors, well under a second after a save.

    from harness.cuda import load
    _cu = load("solution.cu", names=["rms_norm<__nv_bfloat16, 8>"])         # next to the file that calls load

    def rms_norm(x, weight, eps):
        out = torch.empty_like(x)
        kernel = _cu.get("rms_norm<__nv_bfloat16, 8>")                     # or _cu.name, if it is not a template
        kernel[x.shape[0], 256](x, weight, out, x.shape[1], eps)           # [grid, block] or [grid, block, shared]
        return out

Launches use torch's current stream. Tensors are passed as their data pointer, None as a null pointer, int and bool as
an integer, and float as a float or double, in the width that the kernel declares (write 2.0, not 2, for a float);
numpy scalars keep their type. The number and widths of arguments are checked against the kernel's declaration (if the
driver is too old to report it: int as 64 bits, float as 32). `defines` is a dict, `includes` are folders in addition to
the file's and the toolkit's, `options` are NVRTC options such as "--use_fast_math". `load` builds the kernels in
`names`; others are built on their first `get`. An unchanged file is compiled once. Of the rest of the harness this
folder imports only harness.shared.format. library.py finds a file's image or makes it with compiling.py, and returns
kernels; launching.py launches them with the arguments that arguments.py packs.

Calls that take 2 us on the GPU are bound by the launch path. `Plans` caches what was computed for arguments of a form,
`Kernel.prepared` launches without checking its arguments, and `outputs_like` allocates quickly (plans.py):

    _plans = Plans()

    def rms_norm(x, weight, eps):
        for same_form, launch, output in _plans.get(x.shape, ()):
            if same_form(x, weight):
                out = output()
                launch(x.data_ptr(), weight.data_ptr(), out.data_ptr(), float(eps))
                return out
        _plans.keep(x.shape, (x, weight), _plan(x, weight))   # checks the arguments; makes launch and output
        return rms_norm(x, weight, eps)
"""

from .compiling import CompileError
from .launching import Kernel
from .library import Library, load
from .plans import Plans, outputs_like, same_form_as

__all__ = ["CompileError", "Kernel", "Library", "Plans", "load", "outputs_like", "same_form_as"]
