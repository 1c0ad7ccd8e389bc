// Longer rows of any width: those that threads cannot share evenly, and those that begin or end within a vector.
//
// A row is covered by the 16-byte vectors that it touches, in x as in the output: only the first and the last need a
// look at single values, and everything else moves as in rows of whole vectors.
#pragma once
#include "vectors.cuh"

enum Norm { LAYER, RMS };

// A thread's part of the vectors that cover a row. They begin `phase` columns before it. What `j` says of all threads
// is known when the loops are unrolled: inner vectors cost no test.
template <class T, int COLS, int THREADS> struct Cover {
    static constexpr int N = WIDTH<T>, STEP = COLS % N ? COLS & -COLS : N;  // rows begin at multiples of STEP
    static constexpr int VECTORS = (COLS + 2 * N - STEP - 1) / N, EACH = (VECTORS + THREADS - 1) / THREADS;
    int phase;

    __device__ __forceinline__ int column(int j) const { return (j * THREADS + (int)threadIdx.x) * N - phase; }
    __device__ __forceinline__ bool is_inner(int j) const {
        return (STEP == N || j > 0) && (j + 1) * THREADS * N <= COLS;
    }
    __device__ __forceinline__ bool touches(int j) const {
        return ((j + 1) * THREADS - 1) * N < COLS || column(j) < COLS;
    }
    __device__ __forceinline__ bool has(int j, int i) const {
        return is_inner(j) || (STEP == N ? touches(j) : (unsigned)(column(j) + i) < COLS);
    }
    __device__ __forceinline__ bool is_whole(int j) const {
        return is_inner(j) || (STEP == N ? touches(j) : column(j) >= 0 && column(j) <= COLS - N);
    }
};

// The values of a packed vector of COLS for the columns of a thread's vector `j`. Where they are not aligned they come
// from two vectors; one outside of it is not read.
template <class T, int COLS, int THREADS>
__device__ __forceinline__ uint4 values_at(const void* from, const Cover<T, COLS, THREADS>& mine, int j) {
    constexpr int N = WIDTH<T>;
    const int column = mine.column(j);
    if constexpr (COLS % N == 0) return __ldg(static_cast<const uint4*>(from) + column / N);
    const int past = ((unsigned)(size_t)from - mine.phase * (int)sizeof(T)) & 15;  // the same for the whole block
    const uint4* const at =
        reinterpret_cast<const uint4*>(static_cast<const char*>(from) + column * (int)sizeof(T) - past);
    const int second = column + N - past / (int)sizeof(T);  // the first column of the other vector
    uint4 low = {}, high = {};
    if (second > 0) low = __ldg(at);
    if (past && second < COLS) high = __ldg(at + 1);
    unsigned words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 6; ++i) words[i] = past & 8 ? words[i + 2] : words[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) words[i] = past & 4 ? words[i + 1] : words[i];
    if constexpr (sizeof(T) == 2) {
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = __funnelshift_r(words[i], words[i + 1], 8 * (past & 2));
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

template <class T, int COLS, int THREADS>
__device__ __forceinline__ void store(uint4* to, uint4 v, const Cover<T, COLS, THREADS>& mine, int j) {
    if (mine.is_whole(j)) {
        *to = v;
    } else {
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i)
            if (mine.has(j, i)) reinterpret_cast<T*>(to)[i] = reinterpret_cast<const T*>(&v)[i];
    }
}

// The sum over a block, for all of its threads. Every use has `of_warps` to itself, so that one barrier is enough.
template <int WARPS> __device__ __forceinline__ float sum_of_block(float own, float* of_warps) {
#pragma unroll
    for (int step = 16; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
    if (WARPS == 1) return own;
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
    __syncthreads();
    own = 0.0f;
#pragma unroll
    for (int i = 0; i < WARPS; ++i) own += of_warps[i];
    return own;
}

// A block takes a row. The mean comes first and the distances from it after: their counts differ from thread to thread,
// and merging them would cost more than the second barrier.
template <class T, int COLS, int THREADS, Norm NORM, bool WEIGHT, bool BIAS>
__global__ void __launch_bounds__(THREADS) uneven_rows(
    const uint4* __restrict__ x, const uint4* __restrict__ weight, const uint4* __restrict__ bias,
    uint4* __restrict__ y, int, float eps) {
    constexpr int N = WIDTH<T>, WARPS = THREADS / 32;
    using Mine = Cover<T, COLS, THREADS>;
    __shared__ float of_warps[2][WARPS];
    const unsigned long long begin = (unsigned long long)blockIdx.x * COLS, start = begin / N + threadIdx.x;
    const Mine mine = {(int)(begin % N)};

    uint4 packed[Mine::EACH];
#pragma unroll
    for (int j = 0; j < Mine::EACH; ++j) {
        packed[j] = make_uint4(0, 0, 0, 0);
        if (mine.touches(j)) packed[j] = x[start + j * THREADS];
    }
    float wide[N], mean = 0.0f, even = 0.0f, odd = 0.0f;
    if (NORM == LAYER) {
#pragma unroll
        for (int j = 0; j < Mine::EACH; ++j) {
            widen<T>(packed[j], wide);
#pragma unroll
            for (int i = 0; i < N; ++i) mean += mine.has(j, i) ? wide[i] : 0.0f;
        }
        mean = sum_of_block<WARPS>(mean, of_warps[0]) * (1.0f / COLS);
    }
#pragma unroll
    for (int j = 0; j < Mine::EACH; ++j) {
        widen<T>(packed[j], wide);
#pragma unroll
        for (int i = 0; i < N; ++i) wide[i] = mine.has(j, i) ? wide[i] - mean : 0.0f;
#pragma unroll
        for (int i = 0; i < N; i += 2) even += wide[i] * wide[i], odd += wide[i + 1] * wide[i + 1];
    }
    const float scale = rsqrtf(sum_of_block<WARPS>(even + odd, of_warps[1]) * (1.0f / COLS) + eps);
#pragma unroll
    for (int j = 0; j < Mine::EACH; ++j) {
        if (!mine.touches(j)) continue;
        uint4 gain = {}, offset = {};
        if (WEIGHT) gain = values_at(weight, mine, j);
        if (BIAS) offset = values_at(bias, mine, j);
        store(y + start + j * THREADS, normalised<T, WEIGHT, BIAS>(packed[j], mean, scale, gain, offset), mine, j);
    }
}
