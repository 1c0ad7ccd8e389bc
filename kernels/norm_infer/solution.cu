// LayerNorm and RMSNorm over rows of whole 16-byte vectors: every row is read once and kept in registers.
//
// Loads go through the L1 on purpose: with L1::no_allocate the same kernels move 4 % fewer bytes a second on an H200.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

enum Norm { LAYER, RMS };

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

// (x - mean) * scale * weight + bias, rounded once.
template <class T, bool WEIGHT, bool BIAS>
__device__ __forceinline__ uint4 normalised(uint4 packed, float mean, float scale, uint4 weight, uint4 bias) {
    constexpr const T* kind = nullptr;
    float wide[WIDTH<T>], vector[WIDTH<T>];
    widen(packed, wide, kind);
#pragma unroll
    for (int i = 0; i < WIDTH<T>; ++i) wide[i] = (wide[i] - mean) * scale;
    if (WEIGHT) {
        widen(weight, vector, kind);
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i) wide[i] *= vector[i];
    }
    if (BIAS) {
        widen(bias, vector, kind);
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i) wide[i] += vector[i];
    }
    return narrow(wide, kind);
}

// AHEAD also asks for the neighbour of a 128-byte line.
template <bool AHEAD> __device__ __forceinline__ uint4 load_once(const uint4* from) {
    if (!AHEAD) return __ldg(from);
    uint4 v;
    asm volatile("ld.global.nc.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

// Behind a branch ptxas would put off all that only the store needs, such as loads of the gain. Under a predicate not.
__device__ __forceinline__ void store_if(bool inside, uint4* to, uint4 v) {
    asm volatile("{ .reg .pred inside; setp.ne.s32 inside, %5, 0; @inside st.global.v4.u32 [%0], {%1, %2, %3, %4}; }"
                 :: "l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"((int)inside)
                 : "memory");
}

// rsqrtf without its care for subnormal numbers, which takes as long as the root itself: the host sends an eps above.
__device__ __forceinline__ float root_of_normal(float v) {
    asm("rsqrt.approx.ftz.f32 %0, %0;" : "+f"(v));
    return v;
}

template <int LANES> __device__ __forceinline__ float sum_of_lanes(float own) {
#pragma unroll
    for (int step = LANES / 2; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
    return own;
}

// Rows of up to 512 bytes. LANES lanes of a warp take a row, so that its sums are shuffles; every thread has ROWS rows
// in flight. Gain and offset come once to a block, through shared memory, and are loaded together with x: loaded after
// the sums they are a second trip to memory before the first store, and loaded by every warp they cost 16384 heads
// 0.1 us on an H200. The barrier is no loss: a block's stores follow its loads in one go, which makes even a plain copy
// of that size 0.1 us faster.
// The host sees to it that x has fewer than 2^32 vectors.
template <class T, int LANES, int ROWS, int THREADS, bool AHEAD, Norm NORM, bool WEIGHT, bool BIAS>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS) short_rows(
    const uint4* __restrict__ x, const uint4* __restrict__ weight, const uint4* __restrict__ bias,
    uint4* __restrict__ y, int rows, float eps) {
    constexpr const T* kind = nullptr;
    constexpr int TOGETHER = THREADS / LANES;
    constexpr float SHARE = 1.0f / (LANES * WIDTH<T>);
    __shared__ uint4 gains[LANES], offsets[LANES];
    const int lane = threadIdx.x % LANES, row = blockIdx.x * (TOGETHER * ROWS) + threadIdx.x / LANES;
    const unsigned start = (unsigned)row * LANES + lane;

    uint4 packed[ROWS], gain = {}, offset = {};
#pragma unroll
    for (int r = 0; r < ROWS; ++r)  // lanes without a row read the first one, in vain
        packed[r] = load_once<AHEAD>(row + r * TOGETHER < rows ? x + start + r * THREADS : x + lane);
    if (WEIGHT && threadIdx.x < LANES) gains[threadIdx.x] = __ldg(weight + threadIdx.x);
    if (BIAS && threadIdx.x < LANES) offsets[threadIdx.x] = __ldg(bias + threadIdx.x);

#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        float wide[WIDTH<T>], mean = 0.0f, even = 0.0f, odd = 0.0f;
        widen(packed[r], wide, kind);
        if (NORM == LAYER) {
#pragma unroll
            for (int i = 0; i < WIDTH<T>; ++i) mean += wide[i];
            mean = sum_of_lanes<LANES>(mean) * SHARE;
        }
#pragma unroll
        for (int i = 0; i < WIDTH<T>; i += 2) {  // in two chains: half the wait
            even += (wide[i] - mean) * (wide[i] - mean);
            odd += (wide[i + 1] - mean) * (wide[i + 1] - mean);
        }
        const float scale = root_of_normal(sum_of_lanes<LANES>(even + odd) * SHARE + eps);
        if (r == 0) {
            __syncthreads();
            if (WEIGHT) gain = gains[lane];
            if (BIAS) offset = offsets[lane];
        }
        store_if(row + r * TOGETHER < rows, y + start + r * THREADS,
                 normalised<T, WEIGHT, BIAS>(packed[r], mean, scale, gain, offset));
    }
}

// Mean of some values and the sum of their squared distances from it.
struct Moments {
    float mean, squares;
};

template <class T, Norm NORM, int VECTORS>
__device__ __forceinline__ Moments moments_of_thread(const uint4 (&packed)[VECTORS]) {
    constexpr const T* kind = nullptr;
    Moments own = {0.0f, 0.0f};
    float wide[WIDTH<T>];
    if (NORM == LAYER) {
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
            widen(packed[j], wide, kind);
#pragma unroll
            for (int i = 0; i < WIDTH<T>; ++i) own.mean += wide[i];
        }
        own.mean *= 1.0f / (VECTORS * WIDTH<T>);
    }
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        widen(packed[j], wide, kind);
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i) own.squares += (wide[i] - own.mean) * (wide[i] - own.mean);
    }
    return own;
}

// Moments of the row from those of its threads, each of `count` values. They are merged level by level: centred as
// two passes would be, with the one barrier of a single pass.
template <Norm NORM, int WARPS>
__device__ __forceinline__ Moments moments_of_row(Moments own, float count, Moments* of_warps) {
#pragma unroll
    for (int step = 16; step; step /= 2) {
        own.squares += __shfl_xor_sync(~0u, own.squares, step);
        if (NORM == LAYER) {
            const float other = __shfl_xor_sync(~0u, own.mean, step), apart = other - own.mean;
            own.squares += apart * apart * (0.5f * count);
            own.mean = 0.5f * (own.mean + other);
            count *= 2.0f;
        }
    }
    if (WARPS == 1) return own;
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
    __syncthreads();
    // Distances from the first warp's mean are small numbers, however far from zero the row lies.
    const float pivot = NORM == LAYER ? of_warps[0].mean : 0.0f;
    float apart = 0.0f, apart_squares = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < WARPS; ++i) {
        const Moments one = of_warps[i];
        squares += one.squares;
        if (NORM == LAYER) {
            apart += one.mean - pivot;
            apart_squares += (one.mean - pivot) * (one.mean - pivot);
        }
    }
    return {pivot + apart * (1.0f / WARPS), squares + count * (apart_squares - apart * apart * (1.0f / WARPS))};
}

// Longer rows: a block takes one, VECTORS vectors to a thread. Few warps with much each beat many with little: they
// wait less for each other, and a multiprocessor has more rows in flight.
template <class T, int VECTORS, int THREADS, Norm NORM, bool WEIGHT, bool BIAS>
__global__ void __launch_bounds__(THREADS) long_rows(
    const uint4* __restrict__ x, const uint4* __restrict__ weight, const uint4* __restrict__ bias,
    uint4* __restrict__ y, int, float eps) {
    __shared__ Moments of_warps[THREADS / 32];
    const long long start = (long long)blockIdx.x * (VECTORS * THREADS) + threadIdx.x;
    uint4 packed[VECTORS];
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) packed[j] = x[start + j * THREADS];
    const Moments own = moments_of_thread<T, NORM>(packed);
    const Moments row = moments_of_row<NORM, THREADS / 32>(own, VECTORS * WIDTH<T>, of_warps);
    const float scale = rsqrtf(row.squares * (1.0f / (VECTORS * THREADS * WIDTH<T>)) + eps);
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        const int column = j * THREADS + threadIdx.x;
        const uint4 gain = WEIGHT ? __ldg(weight + column) : make_uint4(0, 0, 0, 0);
        const uint4 offset = BIAS ? __ldg(bias + column) : make_uint4(0, 0, 0, 0);
        y[start + j * THREADS] = normalised<T, WEIGHT, BIAS>(packed[j], row.mean, scale, gain, offset);
    }
}
