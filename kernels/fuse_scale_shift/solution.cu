// fuse_scale_shift for 16-bit rows of any width: every access is 16 bytes where columns come in eights. Elsewhere
// scale_shift_across still moves 16, and the LayerNorms as much as divides a row.
#include "chunks.cuh"

using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

// ---- y = x * (constant + scale) + shift ----

template <class T> __device__ __forceinline__ u32 multiplied_and_added(u32 a, u32 b, u32 c);
template <> __device__ __forceinline__ u32 multiplied_and_added<__nv_bfloat16>(u32 a, u32 b, u32 c) {
    u32 result;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
}
template <> __device__ __forceinline__ u32 multiplied_and_added<__half>(u32 a, u32 b, u32 c) {
    u32 result;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
}

template <class T> __device__ __forceinline__ u32& word(Chunk<T, 8>& eight, int i) {
    return reinterpret_cast<u32*>(&eight)[i];
}

// One thread, one vector, counted through all rows: the shortest code, because a few rows take no longer than it takes
// to fetch instructions and one round of memory. In the rows of one batch the scale is broadcast or has a stride.

template <class T, class S> constexpr bool same_type = false;
template <class T> constexpr bool same_type<T, T> = true;

template <class T, class S, int COLS, bool ADDS_CONSTANT, bool PER_TOKEN, bool BATCHED>
__global__ void __launch_bounds__(1024)
scale_shift(const T* __restrict__ x, const S* __restrict__ scale, const T* __restrict__ shift, T* __restrict__ out,
            u32 vectors, i64 token_stride, i64 batch_stride, float constant) {
    u32 vector = blockIdx.x * blockDim.x + threadIdx.x;
    if (vector >= vectors) return;
    u64 at = (u64)vector * 8;
    if constexpr (BATCHED) at += (u64)blockIdx.y * vectors * 8, scale += blockIdx.y * batch_stride;
    if constexpr (PER_TOKEN) scale += vector / (COLS / 8) * token_stride;
    Chunk<T, 8> mine = load<T, 8>(x + at), added = load<T, 8>(shift + at), result;
    Chunk<S, 8> factor = load<S, 8>(scale + vector % (COLS / 8) * 8);
    if constexpr (same_type<T, S> && !ADDS_CONSTANT) {
#pragma unroll
        for (int i = 0; i < 4; ++i)  // exact before its one rounding: never further from the truth than fp32 would be
            word(result, i) = multiplied_and_added<T>(word(mine, i), word(factor, i), word(added, i));
        *reinterpret_cast<Chunk<T, 8>*>(out + at) = result;
    } else {
        float m[8], f[8], a[8];
        widen(mine, m), widen(factor, f), widen(added, a);
#pragma unroll
        for (int i = 0; i < 8; ++i) m[i] = fmaf(m[i], f[i] + constant, a[i]);
        store(out + at, m);
    }
}

// The same where rows, or those of the scale, are no whole vectors: x, shift and out lie without gaps, so vectors run
// on from row to row, and only the scale is read value by value. With eight columns or more a vector meets two rows.
template <class T, class S, int COLS, bool ADDS_CONSTANT, bool PER_ROW>
__global__ void __launch_bounds__(1024)
scale_shift_across(const T* __restrict__ x, const S* __restrict__ scale, const T* __restrict__ shift,
                   T* __restrict__ out, u32 elements, u32 tokens, i64 token_stride, i64 batch_stride, float constant) {
    const u32 at = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (at >= elements) return;
    const bool whole = elements - at >= 8;
    const u32 row = at / COLS, column = at % COLS;
    const S *here = scale, *next = scale;
    if constexpr (PER_ROW) {
        const u32 batch = row / tokens, token = row - batch * tokens;
        here += batch * batch_stride + token * token_stride;
        next = token + 1 < tokens ? here + token_stride : scale + (batch + 1) * batch_stride;
    }
    float m[8], f[8], a[8];
    if (whole) {
        widen(load<T, 8>(x + at), m), widen(load<T, 8>(shift + at), a);
    } else {
#pragma unroll
        for (int i = 0; i < 7; ++i)
            if (at + i < elements) m[i] = wide(x[at + i]), a[i] = wide(shift[at + i]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i)
        if (whole || at + i < elements) f[i] = wide(column + i < COLS ? here[column + i] : next[column + i - COLS]);
#pragma unroll
    for (int i = 0; i < 8; ++i) m[i] = fmaf(m[i], ADDS_CONSTANT ? f[i] + constant : f[i], a[i]);
    if (whole) {
        store(out + at, m);
    } else {
#pragma unroll
        for (int i = 0; i < 7; ++i)
            if (at + i < elements) put(out + at + i, m[i]);
    }
}

// ---- LayerNorm, modulated by the set that a token's index picks ----

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int step = 16; step; step >>= 1) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

template <int WARPS> __device__ __forceinline__ float row_sum(float value, float* of_warps) {
    value = warp_sum(value);
    if constexpr (WARPS > 1) {
        if ((threadIdx.x & 31) == 0) of_warps[threadIdx.x >> 5] = value;
        __syncthreads();
        value = of_warps[0];
#pragma unroll
        for (int warp = 1; warp < WARPS; ++warp) value += of_warps[warp];
    }
    return value;
}

// How whole warps share a row: chunks of WIDTH elements, of which only the last may be missing.
template <int COLS, int WIDTH_, int WARPS_> struct Share {
    static constexpr int WIDTH = WIDTH_, WARPS = WARPS_, STEP = WARPS * 32 * WIDTH, CHUNKS = (COLS + STEP - 1) / STEP;
    static constexpr bool EVEN = COLS % STEP == 0;
    static_assert(COLS % WIDTH == 0, "vectors are whole");
    static __device__ __forceinline__ bool inside(int c) {
        return EVEN || c < CHUNKS - 1 || c * STEP + (int)threadIdx.x * WIDTH < COLS;
    }
};

// A row in the registers of one block: packed as it came, or as fp32 sums where a residual was added to it.
template <class SHARE, class T>
__device__ __forceinline__ void read_row(const T* x, const T*, const T*, T*,
                                         Chunk<T, SHARE::WIDTH> (&held)[SHARE::CHUNKS]) {
#pragma unroll
    for (int c = 0; c < SHARE::CHUNKS; ++c)
        if (SHARE::inside(c)) held[c] = load<T, SHARE::WIDTH>(x + c * SHARE::STEP);
}
template <class SHARE, class T>
__device__ __forceinline__ void read_row(const T* x, const T* residual, const T* gate, T* residual_out,
                                         Chunk<float, SHARE::WIDTH> (&held)[SHARE::CHUNKS]) {
    constexpr int WIDTH = SHARE::WIDTH, STEP = SHARE::STEP;
    Chunk<T, WIDTH> own[SHARE::CHUNKS], before[SHARE::CHUNKS], weight[SHARE::CHUNKS];
#pragma unroll
    for (int c = 0; c < SHARE::CHUNKS; ++c)  // every load is under way before the first is used
        if (SHARE::inside(c)) {
            own[c] = load<T, WIDTH>(x + c * STEP);
            before[c] = load<T, WIDTH>(residual + c * STEP);
            weight[c] = load<T, WIDTH>(gate + c * STEP);
        }
#pragma unroll
    for (int c = 0; c < SHARE::CHUNKS; ++c)
        if (SHARE::inside(c)) {
            float a[WIDTH], b[WIDTH], w[WIDTH];
            widen(own[c], a), widen(before[c], b), widen(weight[c], w);
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) held[c].at[i] = fmaf(w[i], a[i], b[i]);
            store(residual_out + c * STEP, held[c].at);
        }
}

template <bool FIRST, class A, class B> struct Either { using type = A; };
template <class A, class B> struct Either<false, A, B> { using type = B; };

// Registers for 36 warps of a multiprocessor, six rows of 3072 columns: that many loads hide the reductions.
template <int WARPS> constexpr int blocks_at_once = WARPS > 1 ? 36 / WARPS : 32;

template <class T, class I, int COLS, int WIDTH, int WARPS, bool RESIDUAL>
__global__ void __launch_bounds__(WARPS * 32, blocks_at_once<WARPS>)
select01(const T* __restrict__ x, const T* __restrict__ residual, const T* __restrict__ residual_gate,
         const T* __restrict__ scale0, const T* __restrict__ shift0, const T* __restrict__ gate0,
         const T* __restrict__ scale1, const T* __restrict__ shift1, const T* __restrict__ gate1,
         const I* __restrict__ index, T* __restrict__ out, T* __restrict__ residual_out, T* __restrict__ gate_out,
         i64 set_stride, float eps) {
    using Mine = Share<COLS, WIDTH, WARPS>;
    constexpr int CHUNKS = Mine::CHUNKS, STEP = Mine::STEP, PAIR = WIDTH > 1;
    __shared__ float sums[2][WARPS];
    const int column = threadIdx.x * WIDTH;
    const u64 row = (u64)blockIdx.y * gridDim.x + blockIdx.x, base = row * COLS + column;
    const bool second = index[row] != 0;
    Chunk<typename Either<RESIDUAL, float, T>::type, WIDTH> held[CHUNKS];
    read_row<Mine>(x + base, residual + base, residual_gate + base, residual_out + base, held);

    float v[WIDTH], sum = 0.f, squares = 0.f;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
        if (Mine::inside(c)) {
            widen(held[c], v);
#pragma unroll
            for (int i = 0; i < WIDTH; i += 2) sum += PAIR ? v[i] + v[i ^ PAIR] : v[i];
        }
    const float mean = row_sum<WARPS>(sum, sums[0]) * (1.f / COLS);
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) stay_packed(held[c]);
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
        if (Mine::inside(c)) {
            widen(held[c], v);
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) squares = fmaf(v[i ^ PAIR] - mean, v[i ^ PAIR] - mean, squares);
        }
    const float inverse = rsqrtf(row_sum<WARPS>(squares, sums[1]) * (1.f / COLS) + eps);
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) stay_packed(held[c]);

    const i64 set = blockIdx.y * set_stride + column;
    const T *scale = (second ? scale1 : scale0) + set, *shift = (second ? shift1 : shift0) + set;
    const T* gate = (second ? gate1 : gate0) + set;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
        if (Mine::inside(c)) {
            float by[WIDTH], add[WIDTH];
            widen(held[c], v);
            widen(load<T, WIDTH>(scale + c * STEP), by), widen(load<T, WIDTH>(shift + c * STEP), add);
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) v[i] = fmaf(v[i] - mean, fmaf(by[i], inverse, inverse), add[i]);
            store(out + base + c * STEP, v);
            *reinterpret_cast<Chunk<T, WIDTH>*>(gate_out + base + c * STEP) = load<T, WIDTH>(gate + c * STEP);
        }
}
