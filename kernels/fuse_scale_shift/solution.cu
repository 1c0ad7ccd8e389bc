// fuse_scale_shift for 16-bit rows whose columns come in eights: every access is 16 bytes.
//
// Plain loads and stores on purpose: L1::no_allocate and evict-first reads cost 7 % of the bandwidth where the rows are
// larger than the L2.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

// ---- eight values of 16 bits, two in a word ----

template <class T> __device__ __forceinline__ float2 unpacked(u32 word);
template <> __device__ __forceinline__ float2 unpacked<__nv_bfloat16>(u32 word) {
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}
template <> __device__ __forceinline__ float2 unpacked<__half>(u32 word) {
    return __half22float2(*reinterpret_cast<__half2*>(&word));
}

template <class T> __device__ __forceinline__ u32 packed(float low, float high);
template <> __device__ __forceinline__ u32 packed<__nv_bfloat16>(float low, float high) {
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<u32*>(&both);
}
template <> __device__ __forceinline__ u32 packed<__half>(float low, float high) {
    __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<u32*>(&both);
}

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

template <class T> struct Eight {
    u32 word[4];
    __device__ __forceinline__ float2 pair(int i) const { return unpacked<T>(word[i]); }
    __device__ __forceinline__ void set(int i, float low, float high) { word[i] = packed<T>(low, high); }
};
template <> struct Eight<float> {
    float value[8];
    __device__ __forceinline__ float2 pair(int i) const { return {value[2 * i], value[2 * i + 1]}; }
};

__device__ __forceinline__ uint4 read_words(const void* from) { return __ldg(reinterpret_cast<const uint4*>(from)); }

template <class T> __device__ __forceinline__ Eight<T> read_eight(const T* from) {
    Eight<T> eight;
#pragma unroll
    for (int part = 0; part < sizeof(T) / 2; ++part)
        reinterpret_cast<uint4*>(&eight)[part] = read_words(reinterpret_cast<const uint4*>(from) + part);
    return eight;
}
template <class T> __device__ __forceinline__ void write_eight(T* to, const Eight<T>& eight) {
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(&eight);
}

// ---- y = x * (constant + scale) + shift ----
//
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
    Eight<T> mine = read_eight(x + at), added = read_eight(shift + at), result;
    Eight<S> factor = read_eight(scale + vector % (COLS / 8) * 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if constexpr (same_type<T, S> && !ADDS_CONSTANT) {
            // Exact before its one rounding, so never further from the truth than fp32 would be.
            result.word[i] = multiplied_and_added<T>(mine.word[i], factor.word[i], added.word[i]);
        } else {
            float2 m = mine.pair(i), f = factor.pair(i), a = added.pair(i);
            result.set(i, fmaf(m.x, f.x + constant, a.x), fmaf(m.y, f.y + constant, a.y));
        }
    }
    write_eight(out + at, result);
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

// The compiler must not keep what it unpacked: unpacking again costs less than the registers, which are rows in flight.
template <class T> __device__ __forceinline__ void forget(Eight<T>& eight) {
    asm volatile("" : "+r"(eight.word[0]), "+r"(eight.word[1]), "+r"(eight.word[2]), "+r"(eight.word[3]));
}

// A row in the registers of one block: packed as it came, or as fp32 sums where a residual was added to it.
template <int COLS, int WARPS> struct Layout {
    static constexpr int STEP = WARPS * 32 * 8, VECS = (COLS + STEP - 1) / STEP;
    static __device__ __forceinline__ bool inside(int v) {
        return COLS % STEP == 0 || v * STEP + (int)threadIdx.x * 8 < COLS;
    }
};
template <class T, int COLS, int WARPS, bool RESIDUAL> struct Row : Layout<COLS, WARPS> {
    using Layout<COLS, WARPS>::VECS, Layout<COLS, WARPS>::STEP, Layout<COLS, WARPS>::inside;
    Eight<T> words[VECS];
    __device__ __forceinline__ float2 pair(int v, int i) const { return words[v].pair(i); }
    __device__ __forceinline__ void read(const T* x, const T*, const T*, T*) {
#pragma unroll
        for (int v = 0; v < VECS; ++v)
            if (inside(v)) words[v] = read_eight(x + v * STEP);
    }
    __device__ __forceinline__ void release() {
#pragma unroll
        for (int v = 0; v < VECS; ++v) forget(words[v]);
    }
};
template <class T, int COLS, int WARPS> struct Row<T, COLS, WARPS, true> : Layout<COLS, WARPS> {
    using Layout<COLS, WARPS>::VECS, Layout<COLS, WARPS>::STEP, Layout<COLS, WARPS>::inside;
    float values[VECS][8];
    __device__ __forceinline__ float2 pair(int v, int i) const { return {values[v][2 * i], values[v][2 * i + 1]}; }
    __device__ __forceinline__ void read(const T* x, const T* residual, const T* gate, T* residual_out) {
        Eight<T> own[VECS], before[VECS], weight[VECS];
#pragma unroll
        for (int v = 0; v < VECS; ++v)  // every load is under way before the first is used
            if (inside(v)) {
                own[v] = read_eight(x + v * STEP);
                before[v] = read_eight(residual + v * STEP);
                weight[v] = read_eight(gate + v * STEP);
            }
#pragma unroll
        for (int v = 0; v < VECS; ++v)
            if (inside(v)) {
                Eight<T> rounded;
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    float2 a = own[v].pair(i), b = before[v].pair(i), w = weight[v].pair(i);
                    values[v][2 * i] = fmaf(w.x, a.x, b.x), values[v][2 * i + 1] = fmaf(w.y, a.y, b.y);
                    rounded.set(i, values[v][2 * i], values[v][2 * i + 1]);
                }
                write_eight(residual_out + v * STEP, rounded);
            }
    }
    __device__ __forceinline__ void release() {}
};

// Registers for 36 warps of a multiprocessor, six rows of 3072 columns: that many loads hide the reductions.
template <int WARPS> constexpr int blocks_at_once = WARPS > 1 ? 36 / WARPS : 32;

template <class T, class I, int COLS, int WARPS, bool RESIDUAL>
__global__ void __launch_bounds__(WARPS * 32, blocks_at_once<WARPS>)
select01(const T* __restrict__ x, const T* __restrict__ residual, const T* __restrict__ residual_gate,
         const T* __restrict__ scale0, const T* __restrict__ shift0, const T* __restrict__ gate0,
         const T* __restrict__ scale1, const T* __restrict__ shift1, const T* __restrict__ gate1,
         const I* __restrict__ index, T* __restrict__ out, T* __restrict__ residual_out, T* __restrict__ gate_out,
         i64 set_stride, float eps) {
    using Mine = Row<T, COLS, WARPS, RESIDUAL>;
    __shared__ float sums[2][WARPS];
    const int column = threadIdx.x * 8;
    const u64 row = (u64)blockIdx.y * gridDim.x + blockIdx.x, base = row * COLS + column;
    const bool second = index[row] != 0;
    Mine mine;
    mine.read(x + base, residual + base, residual_gate + base, residual_out + base);

    float sum = 0.f, squares = 0.f;
#pragma unroll
    for (int v = 0; v < Mine::VECS; ++v)
        if (Mine::inside(v))
#pragma unroll
            for (int i = 0; i < 4; ++i) sum += mine.pair(v, i).x + mine.pair(v, i).y;
    const float mean = row_sum<WARPS>(sum, sums[0]) * (1.f / COLS);
    mine.release();
#pragma unroll
    for (int v = 0; v < Mine::VECS; ++v)
        if (Mine::inside(v))
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float low = mine.pair(v, i).x - mean, high = mine.pair(v, i).y - mean;
                squares = fmaf(low, low, fmaf(high, high, squares));
            }
    const float inverse = rsqrtf(row_sum<WARPS>(squares, sums[1]) * (1.f / COLS) + eps);
    mine.release();

    const i64 set = blockIdx.y * set_stride + column;
    const T *scale = (second ? scale1 : scale0) + set, *shift = (second ? shift1 : shift0) + set;
    const T* gate = (second ? gate1 : gate0) + set;
#pragma unroll
    for (int v = 0; v < Mine::VECS; ++v)
        if (Mine::inside(v)) {
            Eight<T> factor = read_eight(scale + v * Mine::STEP), added = read_eight(shift + v * Mine::STEP), result;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float2 m = mine.pair(v, i), f = factor.pair(i), a = added.pair(i);
                result.set(i, fmaf(m.x - mean, fmaf(f.x, inverse, inverse), a.x),
                           fmaf(m.y - mean, fmaf(f.y, inverse, inverse), a.y));
            }
            write_eight(out + base + v * Mine::STEP, result);
            write_eight(gate_out + base + v * Mine::STEP, read_eight(gate + v * Mine::STEP));
        }
}
