// (residual + x + bias) / divisor in 16-byte vectors, in fp32 and rounded once.
//
// INNER: how many consecutive values share a channel: a plane, or 1 where channels are adjacent. INNER and CHANNELS are
// compile-time constants, so that the compiler turns divisions into multiplications.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using u32 = unsigned int;
using u64 = unsigned long long;

template <class T> constexpr int WIDTH = 16 / sizeof(T);  // values of a vector

__device__ __forceinline__ float wide(float value) { return value; }
__device__ __forceinline__ float wide(__half value) { return __half2float(value); }
__device__ __forceinline__ float wide(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ void put(float* to, float value) { *to = value; }
__device__ __forceinline__ void put(__half* to, float value) { *to = __float2half_rn(value); }
__device__ __forceinline__ void put(__nv_bfloat16* to, float value) { *to = __float2bfloat16_rn(value); }

template <class T> struct alignas(16) Vector {
    T at[WIDTH<T>];
};

template <class T> __device__ __forceinline__ Vector<T> read(const T* from) {
    const uint4 v = __ldg(reinterpret_cast<const uint4*>(from));
    return *reinterpret_cast<const Vector<T>*>(&v);
}

// The bias of each value of a vector. A vector that may span two planes loads both biases; where channels are adjacent
// but not a multiple of a vector, each bias is loaded by itself, from the L1.
template <class T, int INNER, int CHANNELS>
__device__ __forceinline__ void channel_bias(const T* bias, u32 vector, float (&by)[WIDTH<T>]) {
    constexpr int N = WIDTH<T>;
    if constexpr (INNER % N == 0) {
        const float all = wide(__ldg(bias + vector / (INNER / N) % CHANNELS));
#pragma unroll
        for (int i = 0; i < N; ++i) by[i] = all;
    } else if constexpr (INNER > 1) {
        const u32 at = vector * N, plane = at / INNER, left = INNER - (at - plane * INNER), channel = plane % CHANNELS;
        const float here = wide(__ldg(bias + channel));
        const float next = wide(__ldg(bias + (channel + 1 == CHANNELS ? 0 : channel + 1)));
#pragma unroll
        for (int i = 0; i < N; ++i) by[i] = i < left ? here : next;
    } else if constexpr (CHANNELS % N == 0) {
        const Vector<T> all = read(bias + vector % (CHANNELS / N) * N);
#pragma unroll
        for (int i = 0; i < N; ++i) by[i] = wide(all.at[i]);
    } else {
        u32 channel = vector * N % CHANNELS;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            by[i] = wide(__ldg(bias + channel));
            channel = channel + 1 == CHANNELS ? 0 : channel + 1;
        }
    }
}

template <bool DIVIDED> __device__ __forceinline__ float summed(float x, float by, float residual, float divisor) {
    const float sum = residual + (x + by);
    return DIVIDED ? __fdiv_rn(sum, divisor) : sum;
}

// A vector to a thread. The thread behind the last whole vector takes the REST values that make none.
template <class T, int INNER, int CHANNELS, int REST, bool DIVIDED>
__global__ void __launch_bounds__(1024)
bias_residual_add(const T* __restrict__ x, const T* __restrict__ bias, const T* __restrict__ residual,
                  T* __restrict__ out, u32 vectors, float divisor) {
    constexpr int N = WIDTH<T>;
    const u32 vector = blockIdx.x * blockDim.x + threadIdx.x;
    const u64 at = (u64)vector * N;
    float by[N];
    if (vector < vectors) {
        const Vector<T> mine = read(x + at), before = read(residual + at);
        channel_bias<T, INNER, CHANNELS>(bias, vector, by);
        Vector<T> result;
#pragma unroll
        for (int i = 0; i < N; ++i)
            put(&result.at[i], summed<DIVIDED>(wide(mine.at[i]), by[i], wide(before.at[i]), divisor));
        *reinterpret_cast<uint4*>(out + at) = *reinterpret_cast<const uint4*>(&result);
    } else if (REST && vector == vectors) {
        channel_bias<T, INNER, CHANNELS>(bias, vector, by);
#pragma unroll
        for (int i = 0; i < REST; ++i)
            put(out + at + i, summed<DIVIDED>(wide(x[at + i]), by[i], wide(residual[at + i]), divisor));
    }
}
