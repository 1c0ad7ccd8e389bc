"""One kernel per fault, in CUDA C++ through torch's NVRTC."""

import functools

import torch

SOURCE = r"""
extern "C" __global__ void copy(const float4* x, float4* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 4) y[i] = x[i];
}
extern "C" __global__ void strided(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, rows = n / 32;
    y[i] = x[(long long)(i % rows) * 32 + i / rows];
}
extern "C" __global__ void __launch_bounds__(1024, 2) spills(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v[96];
    #pragma unroll
    for (int k = 0; k < 96; k++) v[k] = x[(i + k * 4099) & (n - 1)];
    for (int r = 0; r < 4; r++) {
        #pragma unroll
        for (int k = 0; k < 96; k++) v[k] = v[k] * v[(k * 7 + 5) % 96] + 0.5f;
    }
    float s = 0;
    #pragma unroll
    for (int k = 0; k < 96; k++) s += v[k];
    y[i] = s;
}
extern "C" __global__ void shared_limit(const float* x, float* y, int n) {
    extern __shared__ float room[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i];
    room[threadIdx.x] = v;
    __syncthreads();
    for (int k = 1; k < 4; k++) v += x[(i + k * 1048583) & (n - 1)];
    y[i] = v + room[(threadIdx.x + 1) % blockDim.x];
}
extern "C" __global__ void register_limit(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    float v[128], s = 0;
    #pragma unroll
    for (int k = 0; k < 128; k++) v[k] = x[(i + k * 32) & (n - 1)];
    unsigned at = i;
    for (int r = 0; r < 24; r++) {  // one load waits for the one before, and all the values stay alive
        s = x[at & (n - 1)];
        at += step + (s > 2.0f);
        #pragma unroll
        for (int k = 0; k < 128; k += 16) v[k] = v[k] * s + 0.5f;
    }
    #pragma unroll
    for (int k = 0; k < 128; k++) s = s * v[k] + v[(k * 7 + 5) % 128];
    y[i] = s;
}
extern "C" __global__ void few_blocks(const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i] * 2.0f;
}
extern "C" __global__ void __launch_bounds__(1024) work(const float* x, float* y, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = x[i & (n - 1)], b = a + 1.0f, c = a + 2.0f, d = a + 3.0f;
    for (int k = 0; k < rounds; k++) {
        a = a * 0.999f + 0.1f; b = b * 0.998f + 0.2f; c = c * 0.997f + 0.3f; d = d * 0.996f + 0.4f;
    }
    y[i & (n - 1)] = a + b + c + d;
}
extern "C" __global__ void conflicts(const float* x, float* y, int n) {
    __shared__ float room[32 * 256];
    int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;
    float v = x[i];
    for (int k = 0; k < 64; k++) {
        room[((t * 32) + k) & 8191] = v;
        v += room[((t * 32) + k + 1) & 8191];
    }
    y[i] = v;
}
extern "C" __global__ void chase(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = i * 97u;
    float v = 0;
    for (int k = 0; k < 32; k++) { v = x[at & (n - 1)]; at = at * 1664525u + 1013904223u + (v > 2.0f); }
    y[i] = v;
}
extern "C" __global__ void barriers(const float* x, float* y, int n) {
    __shared__ float total;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i];
    for (int r = 0; r < 16; r++) {
        if (threadIdx.x < 32) { float s = v; for (int k = 0; k < 64; k++) s = s * 0.99f + 0.1f; total = s; }
        __syncthreads();
        v += total;
        __syncthreads();
    }
    y[i] = v;
}
extern "C" __global__ void twice(const float4* x, float4* y, int n, int part) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x, count = n / 4;
    float4 a = x[i], b = x[(i + count / 3) % count], c = x[(i + 2 * count / 3) % count];
    y[i] = make_float4(a.x + b.x + c.x, a.y + b.y + c.y, a.z + b.z + c.z, a.w + b.w + c.w);
}
extern "C" __global__ void endless(float* y) {
    volatile float* p = y;
    while (p[0] < 2.0f) ;
}
"""


@functools.cache
def kernel(name, shared=0):
    made = torch.cuda._compile_kernel(SOURCE, name)
    if shared:
        made.set_shared_memory_config(shared)
    return made


def faulty(x, fault):
    n = x.numel()
    if fault == "silent":
        return x
    if fault == "three":
        return (x * 2.0).relu() + 1.0
    y = torch.empty_like(x)
    blocks = (n // 256, 1, 1)
    if fault in ("copy", "twice"):
        extra = [0] if fault == "twice" else []
        kernel(fault)((n // 1024, 1, 1), (256, 1, 1), [x, y, n, *extra])
    elif fault == "spills":
        kernel(fault)((n // 1024, 1, 1), (1024, 1, 1), [x, y, n])
    elif fault == "shared_limit":
        kernel(fault, 200 * 1024)(blocks, (256, 1, 1), [x, y, n], shared_mem=200 * 1024)
    elif fault == "register_limit":
        kernel(fault)((n // 4096, 1, 1), (128, 1, 1), [x, y, n])
    elif fault == "few_blocks":
        kernel(fault)((8, 1, 1), (1024, 1, 1), [x, y, n])
    elif fault == "tail":
        sms = torch.cuda.get_device_properties(x.device).multi_processor_count
        kernel("work")((2 * sms + sms // 4, 1, 1), (1024, 1, 1), [x, y, n, 4096])
    elif fault == "compute":
        kernel("work")((n // 1024, 1, 1), (1024, 1, 1), [x, y, n, 512])
    elif fault == "tiny":
        kernel("few_blocks")((4, 1, 1), (256, 1, 1), [x, y, n])
    elif fault == "endless":
        y.zero_()
        kernel(fault)((1, 1, 1), (1, 1, 1), [y])
    else:
        kernel(fault)(blocks, (256, 1, 1), [x, y, n])
    return y
