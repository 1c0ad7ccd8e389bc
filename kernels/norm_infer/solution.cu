// LayerNorm and RMSNorm over packed rows of any width: every row is read once and kept in registers.
//
// Loads go through the L1 on purpose: with L1::no_allocate the same kernels move 4 % fewer bytes a second on an H200.
#include "uneven.cuh"
#include "vectors.cuh"

// AHEAD also asks for the neighbour of a 128-byte line.
template <bool AHEAD, class V> __device__ __forceinline__ V load_once(const V* from) {
    if constexpr (!AHEAD) {
        return __ldg(from);
    } else {
        V v;
        asm volatile("ld.global.nc.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(from));
        return v;
    }
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

// Short rows. LANES lanes of a warp take a row, so its sums need only shuffles; every thread has ROWS rows in flight.
// Where VECTORS is not a multiple of LANES, lanes at the end of a row have nothing to do; where rows are not whole
// 16-byte vectors, V is narrower. Gain and offset come once to a block, through shared memory, and are loaded together
// with x: loaded after the sums they are a second trip to memory before the first store, and loaded by every warp they
// cost 16384 heads 0.1 us on an H200. The barrier is no loss: a block's stores follow its loads in one go, which makes
// even a plain copy of that size 0.1 us faster. The host sees to it that x has fewer than 2^32 vectors.
template <class T, class V, int VECTORS, int LANES, int ROWS, int THREADS, bool AHEAD, Norm NORM, bool WEIGHT,
          bool BIAS>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS) short_rows(
    const V* __restrict__ x, const V* __restrict__ weight, const V* __restrict__ bias, V* __restrict__ y, int rows,
    float eps) {
    constexpr int TOGETHER = THREADS / LANES, EACH = (VECTORS + LANES - 1) / LANES, N = WIDTH<T, V>;
    constexpr float SHARE = 1.0f / (VECTORS * N);
    __shared__ V gains[EACH * LANES], offsets[EACH * LANES];
    const int lane = threadIdx.x % LANES, row = blockIdx.x * (TOGETHER * ROWS) + threadIdx.x / LANES;
    const unsigned start = (unsigned)row * VECTORS + lane;
    const auto inside = [lane](int e) { return (e + 1) * LANES <= VECTORS || lane + e * LANES < VECTORS; };

    V packed[ROWS][EACH], gain[EACH] = {}, offset[EACH] = {};
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {  // lanes without a row read the first one, in vain
        const V* const from = row + r * TOGETHER < rows ? x + start + r * (TOGETHER * VECTORS) : x + lane;
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            packed[r][e] = V{};
            if (inside(e)) packed[r][e] = load_once<AHEAD>(from + e * LANES);
        }
    }
#pragma unroll
    for (int first = 0; first < VECTORS; first += THREADS) {
        const unsigned v = first + threadIdx.x;
        if (WEIGHT && v < VECTORS) gains[v] = __ldg(weight + v);
        if (BIAS && v < VECTORS) offsets[v] = __ldg(bias + v);
    }

#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        float wide[N], mean = 0.0f, squares[2] = {0.0f, 0.0f};
        if (NORM == LAYER) {
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                widen<T>(packed[r][e], wide);
#pragma unroll
                for (int i = 0; i < N; ++i) mean += wide[i];
            }
            mean = sum_of_lanes<LANES>(mean) * SHARE;
        }
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            widen<T>(packed[r][e], wide);
#pragma unroll
            for (int i = 0; i < N; ++i) {  // in two chains: half the wait
                const float apart = NORM == RMS || inside(e) ? wide[i] - mean : 0.0f;
                squares[(e * N + i) % 2] += apart * apart;
            }
        }
        const float scale = root_of_normal(sum_of_lanes<LANES>(squares[0] + squares[1]) * SHARE + eps);
        if (r == 0) {
            __syncthreads();
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                if (WEIGHT) gain[e] = gains[lane + e * LANES];
                if (BIAS) offset[e] = offsets[lane + e * LANES];
            }
        }
#pragma unroll
        for (int e = 0; e < EACH; ++e)
            store_if(row + r * TOGETHER < rows && inside(e), y + start + r * (TOGETHER * VECTORS) + e * LANES,
                     normalised<T, WEIGHT, BIAS>(packed[r][e], mean, scale, gain[e], offset[e]));
    }
}

// Mean of some values and the sum of their squared distances from it.
struct Moments {
    float mean, squares;
};

template <class T, Norm NORM, int VECTORS>
__device__ __forceinline__ Moments moments_of_thread(const uint4 (&packed)[VECTORS]) {
    Moments own = {0.0f, 0.0f};
    float wide[WIDTH<T>];
    if (NORM == LAYER) {
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
            widen<T>(packed[j], wide);
#pragma unroll
            for (int i = 0; i < WIDTH<T>; ++i) own.mean += wide[i];
        }
        own.mean *= 1.0f / (VECTORS * WIDTH<T>);
    }
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        widen<T>(packed[j], wide);
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

// Longer rows that threads share evenly: a block takes one, VECTORS vectors to a thread. Few warps with much each beat
// many with little: they wait less for each other, and a multiprocessor has more rows in flight.
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
