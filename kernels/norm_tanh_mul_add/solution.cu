// RMSNorm(x) * tanh(scale) + shift over rows, and the dual form: that result normalised again, times 1 + scale2.
//
// A block takes a row and reads x and shift once; the row stays in registers, packed as it came, through both norms.
// Five warps of three vectors each (3840 columns of bfloat16) beat fifteen of one: they wait less for each other at the
// barriers, and a multiprocessor has more rows in flight.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// What a thread loads and stores at a time.
template <class T> constexpr int WIDTH = 16 / sizeof(T);

__device__ __forceinline__ void widen(uint4 packed, float (&wide)[4], const float*) {
    wide[0] = __uint_as_float(packed.x);
    wide[1] = __uint_as_float(packed.y);
    wide[2] = __uint_as_float(packed.z);
    wide[3] = __uint_as_float(packed.w);
}

__device__ __forceinline__ void widen(uint4 packed, float (&wide)[8], const __nv_bfloat16*) {
    const unsigned pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // a bfloat16 is the upper half of a float
        wide[2 * i] = __uint_as_float(pairs[i] << 16);
        wide[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
    }
}

__device__ __forceinline__ void widen(uint4 packed, float (&wide)[8], const __half*) {
    const unsigned pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&pairs[i]));
        wide[2 * i] = pair.x;
        wide[2 * i + 1] = pair.y;
    }
}

__device__ __forceinline__ uint4 narrow(const float (&wide)[4], const float*) {
    return make_uint4(__float_as_uint(wide[0]), __float_as_uint(wide[1]), __float_as_uint(wide[2]),
                      __float_as_uint(wide[3]));
}

__device__ __forceinline__ uint4 narrow(const float (&wide)[8], const __nv_bfloat16*) {
    unsigned pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(wide[2 * i], wide[2 * i + 1]);
        pairs[i] = *reinterpret_cast<const unsigned*>(&pair);
    }
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

__device__ __forceinline__ uint4 narrow(const float (&wide)[8], const __half*) {
    unsigned pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const __half2 pair = __floats2half2_rn(wide[2 * i], wide[2 * i + 1]);
        pairs[i] = *reinterpret_cast<const unsigned*>(&pair);
    }
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// x and shift are used once: they shall neither push the gains, which every row needs, out of the L1, nor the results
// out of the L2.
__device__ __forceinline__ uint4 load_once(const uint4* from) {
    unsigned long long first_to_go;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first_to_go));
    uint4 packed;
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(packed.x), "=r"(packed.y), "=r"(packed.z), "=r"(packed.w)
                 : "l"(from), "l"(first_to_go));
    return packed;
}

// Off by 2e-7 at most, of a product that is rounded to 1e-5; tanhf would branch.
__device__ __forceinline__ float tanh_of(float value) { return 1.0f - __fdividef(2.0f, 1.0f + __expf(2.0f * value)); }

// 1 / sqrt(mean of the squares + eps) of the row that the block holds. Every use has `of_warps` to itself, so that one
// barrier is enough.
template <class T, int VECTORS, int THREADS>
__device__ __forceinline__ float inverse_rms(const uint4 (&packed)[VECTORS], float eps, float* of_warps) {
    constexpr const T* kind = nullptr;
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        float wide[WIDTH<T>];
        widen(packed[j], wide, kind);
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i) squares += wide[i] * wide[i];
    }
#pragma unroll
    for (int step = 16; step; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
    if (THREADS > 32) {
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = squares;
        __syncthreads();
        squares = 0.0f;
#pragma unroll 5
        for (int i = 0; i < THREADS / 32; ++i) squares += of_warps[i];
    }
    return rsqrtf(squares * (1.0f / (VECTORS * THREADS * WIDTH<T>)) + eps);
}

// packed * factor * gain, rounded to T: the rounding is part of the contract.
template <class T, bool GAIN>
__device__ __forceinline__ void normalise(uint4 packed, float factor, const uint4* gain, float (&wide)[WIDTH<T>]) {
    constexpr const T* kind = nullptr;
    float gains[WIDTH<T>];
    widen(packed, wide, kind);
    if (GAIN) widen(__ldg(gain), gains, kind);
#pragma unroll
    for (int i = 0; i < WIDTH<T>; ++i) wide[i] = GAIN ? wide[i] * factor * gains[i] : wide[i] * factor;
    widen(narrow(wide, kind), wide, kind);
}

template <class T, int VECTORS, int THREADS, bool DUAL, bool GAIN, bool GAIN2>
__global__ void __launch_bounds__(THREADS) modulated_rows(
    const uint4* __restrict__ x, const uint4* __restrict__ weight, const uint4* __restrict__ scale,
    const uint4* __restrict__ shift, const uint4* __restrict__ weight2, const uint4* __restrict__ scale2,
    uint4* __restrict__ y, uint4* __restrict__ y2, int, float eps) {
    constexpr const T* kind = nullptr;
    __shared__ float of_warps[2][THREADS / 32];
    const long long start = (long long)blockIdx.x * (VECTORS * THREADS) + threadIdx.x;
    uint4 row[VECTORS], add[VECTORS];
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) row[j] = load_once(x + start + j * THREADS);
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) add[j] = load_once(shift + start + j * THREADS);

    float factor = inverse_rms<T, VECTORS, THREADS>(row, eps, of_warps[0]);
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        const int column = j * THREADS + threadIdx.x;
        float wide[WIDTH<T>], gates[WIDTH<T>], adds[WIDTH<T>];
        normalise<T, GAIN>(row[j], factor, weight + column, wide);
        widen(__ldg(scale + column), gates, kind);
        widen(add[j], adds, kind);
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i) wide[i] = wide[i] * tanh_of(gates[i]) + adds[i];
        row[j] = narrow(wide, kind);
        y[start + j * THREADS] = row[j];
    }
    if (!DUAL) return;

    factor = inverse_rms<T, VECTORS, THREADS>(row, eps, of_warps[1]);
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        const int column = j * THREADS + threadIdx.x;
        float wide[WIDTH<T>], gates[WIDTH<T>];
        normalise<T, GAIN2>(row[j], factor, weight2 + column, wide);
        widen(__ldg(scale2 + column), gates, kind);
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i) wide[i] *= 1.0f + gates[i];
        y2[start + j * THREADS] = narrow(wide, kind);
    }
}
