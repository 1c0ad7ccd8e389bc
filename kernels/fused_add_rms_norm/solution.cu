// residual += x; x = rms_norm(residual) * weight, in place, for rows of whole 16-byte vectors.
//
// A block takes a row and keeps its fp32 sums in registers between statistics and output: memory is read once and
// written once. The width of a row is a template argument, so only the last vector of a thread can need a mask, and
// only where the threads do not share the row evenly.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Elements of a vector.
template <class T> constexpr int WIDTH = 16 / sizeof(T);

template <class T> __device__ __forceinline__ float2 unpacked(unsigned word);
template <> __device__ __forceinline__ float2 unpacked<__nv_bfloat16>(unsigned word) {  // the upper half of a float
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}
template <> __device__ __forceinline__ float2 unpacked<__half>(unsigned word) {
    return __half22float2(*reinterpret_cast<__half2*>(&word));
}

template <class T> __device__ __forceinline__ unsigned packed(float low, float high);
template <> __device__ __forceinline__ unsigned packed<__nv_bfloat16>(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&pair);
}
template <> __device__ __forceinline__ unsigned packed<__half>(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&pair);
}

template <class T> __device__ __forceinline__ void widen(uint4 vector, float (&wide)[WIDTH<T>]) {
    const unsigned words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if constexpr (sizeof(T) == 4) {
            wide[i] = __uint_as_float(words[i]);
        } else {
            const float2 pair = unpacked<T>(words[i]);
            wide[2 * i] = pair.x, wide[2 * i + 1] = pair.y;
        }
    }
}

template <class T> __device__ __forceinline__ uint4 narrow(const float (&wide)[WIDTH<T>]) {
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if constexpr (sizeof(T) == 4)
            words[i] = __float_as_uint(wide[i]);
        else
            words[i] = packed<T>(wide[2 * i], wide[2 * i + 1]);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// The sum over a block's threads, for all of them, with one barrier.
template <int WARPS> __device__ __forceinline__ float sum_of_block(float own) {
#pragma unroll
    for (int step = 16; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
    if constexpr (WARPS > 1) {
        __shared__ float of_warps[32];
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
        __syncthreads();
        if constexpr (WARPS <= 8) {
            own = 0.0f;
#pragma unroll
            for (int i = 0; i < WARPS; ++i) own += of_warps[i];
        } else {
            own = threadIdx.x % 32 < WARPS ? of_warps[threadIdx.x % 32] : 0.0f;
#pragma unroll
            for (int step = 16; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
        }
    }
    return own;
}

// One thread asks for all of the gain, and the first rows find it in the L2 when they have their statistics.
__device__ __forceinline__ void bring_to_l2(const void* from, int bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

// VECTORS are those of a row, steps between rows count vectors, BLOCKS are to fit a multiprocessor. With few rows the
// call is all latency: EARLY loads the gain together with x. With many rows registers are rows in flight, and the gain
// comes from the L1 or L2 when it is needed. `normed_at` and `sum_at` are where this thread writes its first vector.
template <class T, int VECTORS, int THREADS, bool EARLY>
__device__ __forceinline__ void add_norm(const uint4* x, const uint4* residual, uint4* normed_at, uint4* sum_at,
                                         const uint4* __restrict__ weight, long long x_step, long long residual_step,
                                         float eps) {
    constexpr int EACH = (VECTORS + THREADS - 1) / THREADS;
    const auto inside = [](int v) {
        return VECTORS % THREADS == 0 || v < EACH - 1 || v * THREADS + (int)threadIdx.x < VECTORS;
    };
    const uint4* const x_at = x + blockIdx.x * x_step + threadIdx.x;
    const uint4* const residual_at = residual + blockIdx.x * residual_step + threadIdx.x;
    weight += threadIdx.x;

    uint4 added[EACH], stream[EACH], gain[EACH];
#pragma unroll
    for (int v = 0; v < EACH; ++v) {  // every load is under way before the first is used
        added[v] = stream[v] = gain[v] = make_uint4(0, 0, 0, 0);
        if (inside(v)) {
            added[v] = x_at[v * THREADS];
            stream[v] = residual_at[v * THREADS];
            if constexpr (EARLY) gain[v] = __ldg(weight + v * THREADS);
        }
    }
    if constexpr (EARLY) {
        // Left to itself, ptxas waits for x and asks for the gain then: a second trip to memory. So x is made to depend
        // on the gain, through bits of a step that are never set, which the compiler does not know.
#pragma unroll
        for (int v = 0; v < EACH; ++v) added[v].x |= gain[v].x & (unsigned)(x_step >> 62);
    }
    if (!EARLY && blockIdx.x == 0 && threadIdx.x == 0) bring_to_l2(weight, VECTORS * 16);

    float summed[EACH][WIDTH<T>], even = 0.0f, odd = 0.0f;
#pragma unroll
    for (int v = 0; v < EACH; ++v) {
        float other[WIDTH<T>];
        widen<T>(added[v], other), widen<T>(stream[v], summed[v]);
#pragma unroll
        for (int i = 0; i < WIDTH<T>; i += 2) {  // in two chains: half the wait
            summed[v][i] += other[i], summed[v][i + 1] += other[i + 1];
            even = fmaf(summed[v][i], summed[v][i], even), odd = fmaf(summed[v][i + 1], summed[v][i + 1], odd);
        }
        if (inside(v)) sum_at[v * THREADS] = narrow<T>(summed[v]);
    }
    const float squares = sum_of_block<THREADS / 32>(even + odd);
    const float scale = rsqrtf(squares * (1.0f / (VECTORS * WIDTH<T>)) + eps);
#pragma unroll
    for (int v = 0; v < EACH; ++v)
        if (inside(v)) {
            float by[WIDTH<T>];
            widen<T>(EARLY ? gain[v] : __ldg(weight + v * THREADS), by);
#pragma unroll
            for (int i = 0; i < WIDTH<T>; ++i) summed[v][i] *= scale * by[i];
            normed_at[v * THREADS] = narrow<T>(summed[v]);
        }
}

template <class T, int VECTORS, int THREADS, int BLOCKS, bool EARLY>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    add_norm_row(uint4* __restrict__ x, uint4* __restrict__ residual, const uint4* __restrict__ weight,
                 long long x_step, long long residual_step, float eps) {
    uint4* const x_at = x + blockIdx.x * x_step + threadIdx.x;
    uint4* const residual_at = residual + blockIdx.x * residual_step + threadIdx.x;
    add_norm<T, VECTORS, THREADS, EARLY>(x, residual, x_at, residual_at, weight, x_step, residual_step, eps);
}

// The same into packed outputs, for graphs that may hold only operators which write to nothing they are given.
template <class T, int VECTORS, int THREADS, int BLOCKS, bool EARLY>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    add_norm_apart(const uint4* __restrict__ x, const uint4* __restrict__ residual, const uint4* __restrict__ weight,
                   uint4* __restrict__ normed, uint4* __restrict__ sum, long long x_step, long long residual_step,
                   float eps) {
    const long long start = blockIdx.x * (long long)VECTORS + threadIdx.x;
    add_norm<T, VECTORS, THREADS, EARLY>(x, residual, normed + start, sum + start, weight, x_step, residual_step, eps);
}
