"""`load("solution.cu")`: CUDA C++ through NVRTC, ready to be launched with tensors, well under a second after a save.

    from harness.cuda import load
    _cu = load("solution.cu", names=["rms_norm<__nv_bfloat16, 8>"])         # beside the file that calls load

    def rms_norm(x, weight, eps):
        out = torch.empty_like(x)
        kernel = _cu.get("rms_norm<__nv_bfloat16, 8>")                     # or _cu.name, where it is no template
        kernel[x.shape[0], 256](x, weight, out, x.shape[1], eps)           # [grid, block] or [grid, block, shared]
        return out

Launches go to torch's current stream. Tensors go as their data pointer and None as a null pointer; int and bool as an
integer and float as a float or double of the width that the kernel declares (write 2.0, not 2, where it declares a
float); numpy scalars as they are. Number and widths of arguments are compared with the kernel's (where the
driver is too old to tell them: int as 64 bits, float as 32). `defines` is a dict, `includes` folders beside the file's
own and the toolkit's, `options` what NVRTC takes, such as "--use_fast_math". Kernels asked for by `names` are built by
`load`, others when `get` first asks. An unchanged file is compiled once. This folder stands alone: it imports nothing
else of the harness and can be copied beside a kernel. library.py finds or makes a file's image by compiling.py and
hands out kernels; launching.py launches them, with the arguments that arguments.py packs.

Calls that are done in 2 us on the GPU live on the launch path. `Plans` finds what was worked out for arguments of one
form again, `Kernel.prepared` launches numbers at which nobody looks again, `outputs_like` allocates (plans.py):

    _plans = Plans()

    def rms_norm(x, weight, eps):
        for same_form, launch, output in _plans.get(x.shape, ()):
            if same_form(x, weight):
                out = output()
                launch(x.data_ptr(), weight.data_ptr(), out.data_ptr(), float(eps))
                return out
        _plans.keep(x.shape, (x, weight), _plan(x, weight))   # checks the arguments and makes launch and output
        return rms_norm(x, weight, eps)
"""

from .compiling import CompileError
from .launching import Kernel
from .library import Library, load
from .plans import Plans, outputs_like, same_form_as

__all__ = ["CompileError", "Kernel", "Library", "Plans", "load", "outputs_like", "same_form_as"]
