// silu(gate) * up: one thread per element.
#include <cuda_bf16.h>

template <class T>
__global__ void my_kernel(const T* __restrict__ gate, const T* __restrict__ up, T* __restrict__ out, long long count) {
    long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    float g = float(gate[index]), u = float(up[index]);
    out[index] = T(g / (1.0f + expf(-g)) * u);
}
