// RMSNorm with gain, scale and shift, of x or of residual + gate * update, and that sum alone: rounded after every
// step, as the expression is in eager torch, because the images depend on it.
//
// Every step on 16-bit values is a packed instruction that rounds both of its values: no step may be contracted into a
// multiply-add. A block takes a row and keeps it, packed, between its sum of squares and its output.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using u32 = unsigned int;
using i64 = long long;

// ---- a word: two values of 16 bits, or one float ----

template <class T> constexpr int WIDTH = 16 / sizeof(T);  // values of a vector

template <class T> struct Pair;
template <> struct Pair<__nv_bfloat16> { using type = __nv_bfloat162; };
template <> struct Pair<__half> { using type = __half2; };
template <class P> __device__ __forceinline__ P pair_of(u32 word) { return *reinterpret_cast<P*>(&word); }
template <class P> __device__ __forceinline__ u32 word_of(P pair) { return *reinterpret_cast<u32*>(&pair); }

template <class T> __device__ __forceinline__ u32 product(u32 a, u32 b) {
    if constexpr (sizeof(T) == 4) return __float_as_uint(__fmul_rn(__uint_as_float(a), __uint_as_float(b)));
    else {
        using P = typename Pair<T>::type;
        return word_of<P>(__hmul2_rn(pair_of<P>(a), pair_of<P>(b)));
    }
}
template <class T> __device__ __forceinline__ u32 sum(u32 a, u32 b) {
    if constexpr (sizeof(T) == 4) return __float_as_uint(__fadd_rn(__uint_as_float(a), __uint_as_float(b)));
    else {
        using P = typename Pair<T>::type;
        return word_of<P>(__hadd2_rn(pair_of<P>(a), pair_of<P>(b)));
    }
}
template <class T> constexpr u32 ONE = 0x3f800000u;
template <> constexpr u32 ONE<__nv_bfloat16> = 0x3f803f80u;
template <> constexpr u32 ONE<__half> = 0x3c003c00u;

template <class T> __device__ __forceinline__ float2 widened(u32 word);
template <> __device__ __forceinline__ float2 widened<float>(u32 word) { return {__uint_as_float(word), 0.f}; }
template <> __device__ __forceinline__ float2 widened<__half>(u32 word) {
    return __half22float2(pair_of<__half2>(word));
}
template <> __device__ __forceinline__ float2 widened<__nv_bfloat16>(u32 word) {  // the upper half of a float, twice
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}

template <class T> __device__ __forceinline__ u32 rounded(float low, float high);
template <> __device__ __forceinline__ u32 rounded<float>(float low, float) { return __float_as_uint(low); }
template <> __device__ __forceinline__ u32 rounded<__half>(float low, float high) {
    return word_of(__floats2half2_rn(low, high));
}
template <> __device__ __forceinline__ u32 rounded<__nv_bfloat16>(float low, float high) {
    return word_of(__floats2bfloat162_rn(low, high));
}

// ---- vectors ----

struct Vector {
    u32 word[4];
};
__device__ __forceinline__ Vector read(const void* from) {
    const uint4 v = __ldg(static_cast<const uint4*>(from));
    return {v.x, v.y, v.z, v.w};
}
__device__ __forceinline__ void write(void* to, const Vector& v) {
    *static_cast<uint4*>(to) = make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]);
}
// The compiler must not keep what it widened: widening again costs less than the registers, which are rows in flight.
__device__ __forceinline__ void stay_packed(Vector& v) {
    asm volatile("" : "+r"(v.word[0]), "+r"(v.word[1]), "+r"(v.word[2]), "+r"(v.word[3]));
}

template <class T>
__device__ __forceinline__ Vector gated(const Vector& residual, const Vector& update, const Vector& gate) {
    Vector result;
#pragma unroll
    for (int i = 0; i < 4; ++i)
        result.word[i] = sum<T>(residual.word[i], product<T>(gate.word[i], update.word[i]));
    return result;
}

// ---- the gated sum alone: one thread, one vector ----

template <class T, int COLS>
__global__ void __launch_bounds__(1024)
gated_sum(const T* __restrict__ residual, const T* __restrict__ update, const T* __restrict__ gate,
          T* __restrict__ out, u32 vectors) {
    const u32 vector = blockIdx.x * blockDim.x + threadIdx.x;
    if (vector >= vectors) return;
    const i64 at = (i64)vector * WIDTH<T>;
    const Vector before = read(residual + at), change = read(update + at);
    write(out + at, gated<T>(before, change, read(gate + vector % (COLS / WIDTH<T>) * WIDTH<T>)));
}

// With many rows: a thread for every vector of a row keeps its part of the gate for ROWS of them. Rows beyond the last
// are read as the last one, in vain: a condition would put their loads behind a branch.
template <class T, int COLS, int ROWS>
__global__ void __launch_bounds__(COLS / WIDTH<T>)
gated_rows(const T* __restrict__ residual, const T* __restrict__ update, const T* __restrict__ gate,
           T* __restrict__ out, u32 rows) {
    const int column = threadIdx.x * WIDTH<T>;
    const u32 row = blockIdx.x * ROWS;
    Vector before[ROWS], change[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const i64 at = (i64)min(row + r, rows - 1) * COLS + column;
        before[r] = read(residual + at), change[r] = read(update + at);
    }
    const Vector by = read(gate + column);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) before[r] = gated<T>(before[r], change[r], by);
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
        if (row + r < rows) write(out + (i64)(row + r) * COLS + column, before[r]);
}

// ---- the norm ----

// One thread asks for all of a vector, and the first rows find it in the L2 when they have their sums.
__device__ __forceinline__ void bring_to_l2(const void* from, int bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

template <int WARPS> __device__ __forceinline__ float row_sum(float own) {
#pragma unroll
    for (int step = 16; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
    if constexpr (WARPS > 1) {
        __shared__ float of_warps[WARPS];
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
        __syncthreads();
        own = of_warps[0];
#pragma unroll
        for (int warp = 1; warp < WARPS; ++warp) own += of_warps[warp];
    }
    return own;
}

// A block of WARPS warps takes a row, VECTORS vectors to a thread; threads beyond the row's end have fewer. BLOCKS of a
// multiprocessor are what registers are cut for.
template <class T, int COLS, int WARPS, int BLOCKS, bool RESIDUAL>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS)
modulated_rows(const T* __restrict__ x, const T* __restrict__ update, const T* __restrict__ gate,
               const T* __restrict__ weight, const T* __restrict__ scale, const T* __restrict__ shift,
               T* __restrict__ out, T* __restrict__ residual_out, float eps) {
    constexpr int STEP = WARPS * 32 * WIDTH<T>, VECTORS = (COLS + STEP - 1) / STEP;
    const int column = threadIdx.x * WIDTH<T>;
    const i64 base = (i64)blockIdx.x * COLS + column;
    auto inside = [&](int v) { return (v + 1) * STEP <= COLS || column + v * STEP < COLS; };
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        constexpr int BYTES = COLS * sizeof(T);
        bring_to_l2(weight, BYTES), bring_to_l2(scale, BYTES), bring_to_l2(shift, BYTES);
    }

    Vector held[VECTORS] = {}, changes[VECTORS];
#pragma unroll
    for (int v = 0; v < VECTORS; ++v)  // every load is under way before the first is used
        if (inside(v)) {
            held[v] = read(x + base + v * STEP);
            if constexpr (RESIDUAL) changes[v] = read(update + base + v * STEP);
        }
    float squares = 0.f;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        if constexpr (RESIDUAL)
            if (inside(v)) {
                held[v] = gated<T>(held[v], changes[v], read(gate + column + v * STEP));
                write(residual_out + base + v * STEP, held[v]);
            }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float2 pair = widened<T>(held[v].word[i]);
            squares = fmaf(pair.x, pair.x, squares);
            if constexpr (sizeof(T) == 2) squares = fmaf(pair.y, pair.y, squares);
        }
        stay_packed(held[v]);
    }
    const float inverse = rsqrtf(row_sum<WARPS>(squares) * (1.f / COLS) + eps);
#pragma unroll
    for (int v = 0; v < VECTORS; ++v)
        if (inside(v)) {
            const int at = column + v * STEP;
            const Vector gain = read(weight + at), by = read(scale + at), plus = read(shift + at);
            Vector result;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float2 pair = widened<T>(held[v].word[i]);
                const u32 normal = rounded<T>(__fmul_rn(pair.x, inverse), __fmul_rn(pair.y, inverse));
                const u32 factor = sum<T>(ONE<T>, by.word[i]);
                const u32 scaled = product<T>(product<T>(normal, gain.word[i]), factor);
                result.word[i] = sum<T>(scaled, plus.word[i]);
            }
            write(out + base + v * STEP, result);
        }
}
