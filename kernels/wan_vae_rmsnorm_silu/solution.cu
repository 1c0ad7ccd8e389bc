// RMSNorm over channels and SiLU, in the layout of x: fp32 inside, one rounding. One read and one write: what a thread
// has of a position stays in its registers, packed, between the sum of squares and the output.
//
// Channels-last, a position is a row, and a team of lanes takes it. Elsewhere channels lie apart, and a block takes a
// tile of all channels at as many neighboring positions as make whole sectors: a thread has vectors of as many
// positions, of every n-th channel, and the block's sums meet in shared memory.
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

struct Vector {
    unsigned words[4];
};
__device__ __forceinline__ Vector read(const uint4* from) {
    const uint4 v = __ldg(from);
    return {v.x, v.y, v.z, v.w};
}
__device__ __forceinline__ void write(uint4* to, const Vector& v) {
    *to = make_uint4(v.words[0], v.words[1], v.words[2], v.words[3]);
}
// The compiler must not keep what it widened: widening again costs less than the registers, which are loads in flight.
__device__ __forceinline__ void stay_packed(Vector& v) {
    asm volatile("" : "+r"(v.words[0]), "+r"(v.words[1]), "+r"(v.words[2]), "+r"(v.words[3]));
}

template <class T> __device__ __forceinline__ void widen(const Vector& vector, float (&wide)[WIDTH<T>]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if constexpr (sizeof(T) == 4) {
            wide[i] = __uint_as_float(vector.words[i]);
        } else {
            const float2 pair = unpacked<T>(vector.words[i]);
            wide[2 * i] = pair.x, wide[2 * i + 1] = pair.y;
        }
    }
}
template <class T> __device__ __forceinline__ Vector narrow(const float (&wide)[WIDTH<T>]) {
    Vector vector;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if constexpr (sizeof(T) == 4)
            vector.words[i] = __float_as_uint(wide[i]);
        else
            vector.words[i] = packed<T>(wide[2 * i], wide[2 * i + 1]);
    }
    return vector;
}
__device__ __forceinline__ float widened(float value) { return value; }
__device__ __forceinline__ float widened(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float widened(__half value) { return __half2float(value); }

__device__ __forceinline__ float power_of_two(float v) {
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(v));
    return v;
}
__device__ __forceinline__ float reciprocal(float v) {
    asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(v));
    return v;
}

// sqrt(C) over the L2 norm, which counts as 1e-12 where it is less. A sum that is no number stays none.
__device__ __forceinline__ float over_norm(float squares, float root) {
    return root * (squares < 1e-24f ? 1e12f : rsqrtf(squares));
}

// SiLU of z, z / (1 + e^-z), for u = z * SCALE, which is -log2(e): the power 2^u is e^-z.
constexpr float SCALE = -1.4426950408889634f;
__device__ __forceinline__ float activated(float u) { return u * reciprocal(fmaf(power_of_two(u), SCALE, SCALE)); }

// ---- channels-last: a team of TEAM lanes to a row of VECTORS ----

// Beyond the last row, lanes read that row again and drop the result: every lane has to take part in the shuffles.
template <class T, int VECTORS, int TEAM, int THREADS, bool BIASED>
__global__ void __launch_bounds__(THREADS)
    normed_rows(const uint4* __restrict__ x, const uint4* __restrict__ gamma, const uint4* __restrict__ bias,
                uint4* __restrict__ out, unsigned rows, float root) {
    constexpr int EACH = (VECTORS + TEAM - 1) / TEAM;
    const int lane = threadIdx.x % TEAM;
    const unsigned row = blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM;
    const long long at = (long long)min(row, rows - 1) * VECTORS + lane;
    const auto inside = [&](int v) { return VECTORS % TEAM == 0 || v < EACH - 1 || v * TEAM + lane < VECTORS; };

    Vector held[EACH] = {}, gain[EACH] = {}, offset[EACH] = {};
#pragma unroll
    for (int v = 0; v < EACH; ++v)  // every load is under way before the first is used
        if (inside(v)) held[v] = read(x + at + v * TEAM);
#pragma unroll
    for (int v = 0; v < EACH; ++v)
        if (inside(v)) {
            gain[v] = read(gamma + lane + v * TEAM);
            if constexpr (BIASED) offset[v] = read(bias + lane + v * TEAM);
            // Left to itself, ptxas asks for these when they are needed: a second trip to memory. So x is made to
            // depend on them, through a bit of `rows` that is never set, which the compiler does not know.
            held[v].words[0] |= (gain[v].words[0] | offset[v].words[0]) & rows >> 31;
        }
    float even = 0.0f, odd = 0.0f;
#pragma unroll
    for (int v = 0; v < EACH; ++v) {
        float wide[WIDTH<T>];
        widen<T>(held[v], wide);
#pragma unroll
        for (int i = 0; i < WIDTH<T>; i += 2)
            even = fmaf(wide[i], wide[i], even), odd = fmaf(wide[i + 1], wide[i + 1], odd);
        stay_packed(held[v]);
    }
    float squares = even + odd;
#pragma unroll
    for (int step = TEAM / 2; step; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
    const float by = over_norm(squares, root * SCALE);
#pragma unroll
    for (int v = 0; v < EACH; ++v) {
        float wide[WIDTH<T>], gains[WIDTH<T>], offsets[WIDTH<T>];
        widen<T>(held[v], wide), widen<T>(gain[v], gains), widen<T>(offset[v], offsets);
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i) {
            const float scaled = wide[i] * by;
            wide[i] = activated(BIASED ? fmaf(scaled, gains[i], offsets[i] * SCALE) : scaled * gains[i]);
        }
        if (inside(v) && row < rows) write(out + at + v * TEAM, narrow<T>(wide));
    }
}

// ---- channels apart: a block to all CHANNELS of LANES vectors of positions ----

// `inner` are vectors from a channel to the next; blockIdx.y counts what has channels of its own. BLOCKS are to fit a
// multiprocessor.
template <class T, int CHANNELS, int LANES, int THREADS, int BLOCKS, bool BIASED>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    normed_columns(const uint4* __restrict__ x, const T* __restrict__ gamma, const T* __restrict__ bias,
                   uint4* __restrict__ out, unsigned inner, float root) {
    constexpr int TOGETHER = THREADS / LANES, EACH = (CHANNELS + TOGETHER - 1) / TOGETHER, WARPS = THREADS / 32;
    __shared__ float4 of_warps[WARPS][WIDTH<T> / 4][LANES];
    __shared__ float gains[CHANNELS], offsets[BIASED ? CHANNELS : 1];
    const int lane = threadIdx.x % LANES, first = threadIdx.x / LANES;
    const unsigned column = blockIdx.x * LANES + lane;
    const bool present = column < inner;
    const long long start = ((long long)blockIdx.y * CHANNELS + first) * inner + column;
    const auto inside = [&](int v) {
        return present && (CHANNELS % TOGETHER == 0 || v < EACH - 1 || v * TOGETHER + first < CHANNELS);
    };

    unsigned step = TOGETHER * inner;
    Vector held[EACH] = {};
#pragma unroll
    for (int v = 0; v < EACH; ++v)  // every load is under way before the first is used
        if (inside(v)) held[v] = read(x + start + v * step);
#pragma unroll
    for (int c = 0; c < CHANNELS; c += THREADS)
        if (c + (int)threadIdx.x < CHANNELS) {
            gains[c + threadIdx.x] = widened(gamma[c + threadIdx.x]);
            if constexpr (BIASED) offsets[c + threadIdx.x] = widened(bias[c + threadIdx.x]) * SCALE;
        }
    float squares[WIDTH<T>] = {};
#pragma unroll
    for (int v = 0; v < EACH; ++v) {
        float wide[WIDTH<T>];
        widen<T>(held[v], wide);
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i) squares[i] = fmaf(wide[i], wide[i], squares[i]);
        stay_packed(held[v]);
    }
#pragma unroll
    for (int i = 0; i < WIDTH<T>; ++i)
#pragma unroll
        for (int apart = LANES; apart < 32; apart *= 2) squares[i] += __shfl_xor_sync(~0u, squares[i], apart);
    if (threadIdx.x % 32 < LANES)
#pragma unroll
        for (int i = 0; i < WIDTH<T>; i += 4)
            of_warps[threadIdx.x / 32][i / 4][lane] =
                make_float4(squares[i], squares[i + 1], squares[i + 2], squares[i + 3]);
    __syncthreads();
    float by[WIDTH<T>] = {};
#pragma unroll 2
    for (int warp = 0; warp < WARPS; ++warp)  // all at once would take the registers of eight more vectors
#pragma unroll
        for (int i = 0; i < WIDTH<T>; i += 4) {
            const float4 sum = of_warps[warp][i / 4][lane];
            by[i] += sum.x, by[i + 1] += sum.y, by[i + 2] += sum.z, by[i + 3] += sum.w;
        }
#pragma unroll
    for (int i = 0; i < WIDTH<T>; ++i) by[i] = over_norm(by[i], root * SCALE);
    asm volatile("" : "+r"(step));  // places are worked out again: kept, they would take as many registers as values
#pragma unroll
    for (int v = 0; v < EACH; ++v)
        if (inside(v)) {
            const float gain = gains[v * TOGETHER + first], offset = BIASED ? offsets[v * TOGETHER + first] : 0.0f;
            float wide[WIDTH<T>];
            widen<T>(held[v], wide);
#pragma unroll
            for (int i = 0; i < WIDTH<T>; ++i) {
                const float scaled = wide[i] * by[i];
                wide[i] = activated(BIASED ? fmaf(scaled, gain, offset) : scaled * gain);
            }
            write(out + start + v * step, narrow<T>(wide));
        }
}
