// The 16-byte vectors that cover a row of any width, and the values in them as floats.
//
// Where rows begin or end within a vector, only the first and the last need a look at single values.
#pragma once
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
    // Where rows are whole vectors, a thread computes what lies behind the row too, and only does not store it: a branch
    // around it would keep the gains from being asked for before the barrier.
    __device__ __forceinline__ bool computes(int j) const { return STEP == N || touches(j); }
    __device__ __forceinline__ bool has(int j, int i) const {
        return is_inner(j) || (STEP == N ? touches(j) : (unsigned)(column(j) + i) < COLS);
    }
    __device__ __forceinline__ bool is_whole(int j) const {
        return is_inner(j) || (STEP == N ? touches(j) : column(j) >= 0 && column(j) <= COLS - N);
    }
};

// With zeros for what is not of the row. Few threads have any of that: the others skip it.
template <class T, int COLS, int THREADS>
__device__ __forceinline__ uint4 cleared(uint4 v, const Cover<T, COLS, THREADS>& mine, int j) {
    if (mine.is_whole(j)) return v;
    unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < WIDTH<T>; ++i) {
        const unsigned others = sizeof(T) == 4 ? 0u : i % 2 ? 0x0000ffffu : 0xffff0000u;
        if (!mine.has(j, i)) words[i * (int)sizeof(T) / 4] &= others;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// The values of a packed vector of COLS for the columns of a thread's vector `j`. Where they are not aligned they come
// from two vectors; one outside of it is not read. If ptxas knows that `past` is the same for the whole block, each
// choice below fetches its predicate anew. HIDDEN keeps it from knowing, for a register or two, which only the single
// form has to spare.
template <bool HIDDEN, class T, int COLS, int THREADS>
__device__ __forceinline__ uint4 values_at(const void* from, const Cover<T, COLS, THREADS>& mine, int j) {
    constexpr int N = WIDTH<T>;
    const int column = mine.column(j);
    if constexpr (COLS % N == 0)
        return __ldg(static_cast<const uint4*>(from) + (mine.is_inner(j) ? column : min(column, COLS - N)) / N);
    int past = ((unsigned)(size_t)from - mine.phase * (int)sizeof(T)) & 15;
    if constexpr (HIDDEN) {
        int lane;
        asm("mov.u32 %0, %%laneid;" : "=r"(lane));
        past += lane >> 5;
    }
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
