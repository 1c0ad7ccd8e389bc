// RMSNorm(x) * tanh(scale) + shift over rows, and the dual form: that result normalised again, times 1 + scale2.
//
// A block takes a row of any width and reads x and shift once; the row stays in registers, packed as it came, through
// both norms. Five warps of three vectors each (3840 columns of bfloat16) beat fifteen of one: they wait less for each
// other at the barriers, and a multiprocessor has more rows in flight.
#include "vectors.cuh"

// x and shift are used once: they must push neither the gains, which every row needs, out of the L1 nor the results out
// of the L2.
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
template <class T, int COLS, int THREADS, int EACH>
__device__ __forceinline__ float inverse_rms(const uint4 (&packed)[EACH], const Cover<T, COLS, THREADS>& mine,
                                             float eps, float* of_warps) {
    constexpr const T* kind = nullptr;
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < EACH; ++j) {
        float wide[WIDTH<T>];
        widen(cleared(packed[j], mine, j), wide, kind);
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
    return rsqrtf(squares * (1.0f / COLS) + eps);
}

// packed * factor * gain, rounded to T: the rounding is part of the contract.
template <class T, bool GAIN>
__device__ __forceinline__ void normalise(uint4 packed, float factor, uint4 gain, float (&wide)[WIDTH<T>]) {
    constexpr const T* kind = nullptr;
    float gains[WIDTH<T>];
    widen(packed, wide, kind);
    if (GAIN) widen(gain, gains, kind);
#pragma unroll
    for (int i = 0; i < WIDTH<T>; ++i) wide[i] = GAIN ? wide[i] * factor * gains[i] : wide[i] * factor;
    widen(narrow(wide, kind), wide, kind);
}

// weight, scale, weight2 and scale2 need alignment only where rows are whole vectors.
template <class T, int COLS, int THREADS, bool DUAL, bool GAIN, bool GAIN2>
__global__ void __launch_bounds__(THREADS) modulated_rows(
    const uint4* __restrict__ x, const void* __restrict__ weight, const void* __restrict__ scale,
    const uint4* __restrict__ shift, const void* __restrict__ weight2, const void* __restrict__ scale2,
    uint4* __restrict__ y, uint4* __restrict__ y2, int, float eps) {
    using Mine = Cover<T, COLS, THREADS>;
    constexpr const T* kind = nullptr;
    __shared__ float of_warps[2][THREADS / 32];
    const unsigned long long begin = (unsigned long long)blockIdx.x * COLS, start = begin / WIDTH<T> + threadIdx.x;
    const Mine mine = {(int)(begin % WIDTH<T>)};
    uint4 row[Mine::EACH] = {}, add[Mine::EACH] = {};
#pragma unroll
    for (int j = 0; j < Mine::EACH; ++j)
        if (mine.touches(j)) row[j] = load_once(x + start + j * THREADS);
#pragma unroll
    for (int j = 0; j < Mine::EACH; ++j)
        if (mine.touches(j)) add[j] = load_once(shift + start + j * THREADS);

    float factor = inverse_rms<T>(row, mine, eps, of_warps[0]);
#pragma unroll
    for (int j = 0; j < Mine::EACH; ++j) {
        if (!mine.computes(j)) continue;
        float wide[WIDTH<T>], gates[WIDTH<T>], adds[WIDTH<T>];
        normalise<T, GAIN>(row[j], factor, GAIN ? values_at<!DUAL>(weight, mine, j) : uint4{}, wide);
        widen(values_at<!DUAL>(scale, mine, j), gates, kind);
        widen(add[j], adds, kind);
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i) wide[i] = wide[i] * tanh_of(gates[i]) + adds[i];
        row[j] = narrow(wide, kind);
        if (mine.touches(j)) store(y + start + j * THREADS, row[j], mine, j);
    }
    if (!DUAL) return;

    factor = inverse_rms<T>(row, mine, eps, of_warps[1]);
#pragma unroll
    for (int j = 0; j < Mine::EACH; ++j) {
        if (!mine.computes(j)) continue;
        float wide[WIDTH<T>], gates[WIDTH<T>];
        normalise<T, GAIN2>(row[j], factor, GAIN2 ? values_at<!DUAL>(weight2, mine, j) : uint4{}, wide);
        widen(values_at<!DUAL>(scale2, mine, j), gates, kind);
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i) wide[i] *= 1.0f + gates[i];
        if (mine.touches(j)) store(y2 + start + j * THREADS, narrow(wide, kind), mine, j);
    }
}
