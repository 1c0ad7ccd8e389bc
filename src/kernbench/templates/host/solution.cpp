// silu(gate) * up, fp32, one thread. Tensors arrive as pointers, int as int64_t, float as double.

#include <math.h>
#include <stdint.h>

extern "C" void my_kernel(const float *gate, const float *up, float *out, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}
