// residual + update * gate, or b + a, in 16-byte vectors. Products and sums of 16-bit values are exact before the one
// rounding of a packed instruction, so eight values take four instructions.
//
// COLS is what a row of the gate has, 0 where every element has a gate of its own: known to the compiler, it makes the
// remainder of a division a multiplication.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

enum Sum { GATED, ADDED };

// ---- a word: two values of 16 bits, or one float ----

template <class T> constexpr int WIDTH = 16 / sizeof(T);  // values of a vector

template <class T> __device__ __forceinline__ u32 multiplied_and_added(u32 a, u32 b, u32 c);
template <> __device__ __forceinline__ u32 multiplied_and_added<__nv_bfloat16>(u32 a, u32 b, u32 c) {
    asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
    return c;
}
template <> __device__ __forceinline__ u32 multiplied_and_added<__half>(u32 a, u32 b, u32 c) {
    asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
    return c;
}
template <> __device__ __forceinline__ u32 multiplied_and_added<float>(u32 a, u32 b, u32 c) {
    return __float_as_uint(fmaf(__uint_as_float(a), __uint_as_float(b), __uint_as_float(c)));
}

template <class T> __device__ __forceinline__ u32 added(u32 a, u32 b);
template <> __device__ __forceinline__ u32 added<__nv_bfloat16>(u32 a, u32 b) {
    const __nv_bfloat162 sum = __hadd2(*reinterpret_cast<__nv_bfloat162*>(&a), *reinterpret_cast<__nv_bfloat162*>(&b));
    return *reinterpret_cast<const u32*>(&sum);
}
template <> __device__ __forceinline__ u32 added<__half>(u32 a, u32 b) {
    const __half2 sum = __hadd2(*reinterpret_cast<__half2*>(&a), *reinterpret_cast<__half2*>(&b));
    return *reinterpret_cast<const u32*>(&sum);
}
template <> __device__ __forceinline__ u32 added<float>(u32 a, u32 b) {
    return __float_as_uint(__uint_as_float(a) + __uint_as_float(b));
}

template <class T, Sum SUM> __device__ __forceinline__ u32 combined(u32 first, u32 update, u32 factor) {
    return SUM == GATED ? multiplied_and_added<T>(update, factor, first) : added<T>(first, factor);
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

template <class T, Sum SUM>
__device__ __forceinline__ Vector combined(const Vector& first, const Vector& update, const Vector& factor) {
    Vector result;
#pragma unroll
    for (int i = 0; i < 4; ++i) result.word[i] = combined<T, SUM>(first.word[i], update.word[i], factor.word[i]);
    return result;
}

template <class T> __device__ __forceinline__ u32 one_value(const T* from) {
    if constexpr (sizeof(T) == 4) return __ldg(reinterpret_cast<const u32*>(from));
    else return __ldg(reinterpret_cast<const u16*>(from));
}

// A vector of a row that is repeated without a gap, so that it may begin anywhere and go over the row's end: value by
// value, out of the L1, which has cycles to spare.
template <class T, int COLS> __device__ __forceinline__ Vector read_repeated(const T* row, u32 column) {
    Vector v;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        v.word[i] = one_value(row + column);
        column = column + 1 == COLS ? 0 : column + 1;
        if constexpr (sizeof(T) == 2) {
            v.word[i] |= one_value(row + column) << 16;
            column = column + 1 == COLS ? 0 : column + 1;
        }
    }
    return v;
}

// ---- one thread, one vector, counted through all rows ----
//
// The shortest code there is: a few rows take no longer than it takes to fetch it and one round of memory. The thread
// behind the last whole vector takes the REST values that make none. In a batch (grid.y) every `step` values have a
// factor of their own.

template <class T, Sum SUM, int COLS, int REST, bool BATCHED>
__global__ void __launch_bounds__(1024)
flat(const T* __restrict__ first, const T* __restrict__ update, const T* __restrict__ factor, T* __restrict__ out,
     u32 vectors, u64 step) {
    constexpr bool WHOLE = COLS > 0 && COLS % WIDTH<T> == 0;
    const u32 vector = blockIdx.x * blockDim.x + threadIdx.x;
    u64 at = (u64)vector * WIDTH<T>;
    u32 column = 0;
    if constexpr (WHOLE) column = vector % (COLS / WIDTH<T>) * WIDTH<T>;
    else if constexpr (COLS > 0) column = vector % COLS * WIDTH<T> % COLS;  // in 32 bits
    if constexpr (BATCHED) at += blockIdx.y * step, factor += (u64)blockIdx.y * COLS;
    if (vector < vectors) {
        const Vector mine = read(first + at), change = SUM == GATED ? read(update + at) : Vector{};
        Vector by;
        if constexpr (COLS == 0) by = read(factor + at);
        else if constexpr (WHOLE) by = read(factor + column);
        else by = read_repeated<T, COLS>(factor, column);
        write(out + at, combined<T, SUM>(mine, change, by));
    } else if (REST && vector == vectors) {
#pragma unroll
        for (int i = 0; i < REST; ++i) {
            u32 by;
            if constexpr (COLS > 0) by = one_value(factor + (column + i) % COLS);
            else by = one_value(factor + at + i);
            const u32 change = SUM == GATED ? one_value(update + at + i) : 0;
            const u32 result = combined<T, SUM>(one_value(first + at + i), change, by);
            if constexpr (sizeof(T) == 4) reinterpret_cast<u32*>(out)[at + i] = result;
            else reinterpret_cast<u16*>(out)[at + i] = (u16)result;
        }
    }
}

// ---- many rows: a block as wide as a row, EACH rows to a thread ----
//
// The factor is read once for EACH rows, and no thread divides. Rows beyond the last are read as the last one, in vain:
// behind a branch their loads would not be under way with the others.

// Blocks that fill a multiprocessor where a thread has two rows, and half of them where it has four.
template <int THREADS, int EACH> constexpr int blocks_at_once = EACH > 2 ? 1024 / THREADS : 2048 / THREADS;

template <class T, Sum SUM, int COLS, int EACH, bool BATCHED>
__global__ void __launch_bounds__(COLS / WIDTH<T>, blocks_at_once<COLS / WIDTH<T>, EACH>)
wide(const T* __restrict__ first, const T* __restrict__ update, const T* __restrict__ factor, T* __restrict__ out,
     u32 rows) {
    const u32 column = threadIdx.x * WIDTH<T>, row = blockIdx.x * EACH;
    u64 base = column;
    if constexpr (BATCHED) base += (u64)blockIdx.y * rows * COLS, factor += (u64)blockIdx.y * COLS;
    Vector mine[EACH], change[EACH];
#pragma unroll
    for (int r = 0; r < EACH; ++r) {
        const u64 at = base + (u64)min(row + r, rows - 1) * COLS;
        mine[r] = read(first + at);
        if constexpr (SUM == GATED) change[r] = read(update + at);
    }
    const Vector by = read(factor + column);
#pragma unroll
    for (int r = 0; r < EACH; ++r)
        if (row + r < rows) write(out + base + (u64)(row + r) * COLS, combined<T, SUM>(mine[r], change[r], by));
}
