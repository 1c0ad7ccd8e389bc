// RMSNorm and rotary embedding of the heads of q and k, in place or not: every head is read once and kept in registers.
//
// HEAD / 8 lanes of a warp share a head, 16 bytes each, so that its sum of squares is a few shuffles and nobody waits at
// a barrier. They take ROWS neighbouring heads of one token, all in flight at once, and load the angles of the token
// once for all of them. What a call takes is mostly one trip to memory, so everything is asked for before anything is
// waited for; the heads are turned in the shadow of the shuffles, and scaled last. Loads and stores are plain: the
// rows of norm_infer, as short as these, moved 5 % fewer bytes a second with hints that spare the L1, and these rows 3 %
// fewer with loads that bring 256 bytes at a time into the L2.
#include <cuda_bf16.h>

// A condition that the compiler does not turn into a branch with the address worked out on both of its sides.
__device__ __forceinline__ uint4 load_if(bool there, const uint4* at) {
    uint4 loaded;
    asm volatile(
        "{\n.reg .pred there;\n"
        "setp.ne.u32 there, %5, 0;\n"
        "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
        "@there ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
        : "=r"(loaded.x), "=r"(loaded.y), "=r"(loaded.z), "=r"(loaded.w)
        : "l"(at), "r"((unsigned)there));
    return loaded;
}

__device__ __forceinline__ void widen(uint4 packed, float (&wide)[8]) {
    const unsigned pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // a bfloat16 is the upper half of a float
        wide[2 * i] = __uint_as_float(pairs[i] << 16);
        wide[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
    }
}

__device__ __forceinline__ uint4 narrow(const float (&wide)[8], float scale) {
    unsigned pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(wide[2 * i] * scale, wide[2 * i + 1] * scale);
        pairs[i] = *reinterpret_cast<const unsigned*>(&pair);
    }
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

__device__ __forceinline__ uint4 from_lane(uint4 packed, int apart) {
    return make_uint4(__shfl_xor_sync(~0u, packed.x, apart), __shfl_xor_sync(~0u, packed.y, apart),
                      __shfl_xor_sync(~0u, packed.z, apart), __shfl_xor_sync(~0u, packed.w, apart));
}

__device__ __forceinline__ float sum_of_squares(uint4 packed) {
    float wide[8], squares = 0.0f;
    widen(packed, wide);
#pragma unroll
    for (int i = 0; i < 8; ++i) squares += wide[i] * wide[i];
    return squares;
}

__device__ __forceinline__ void weigh(uint4 packed, uint4 weight, float (&wide)[8]) {
    float gain[8];
    widen(packed, wide), widen(weight, gain);
#pragma unroll
    for (int i = 0; i < 8; ++i) wide[i] *= gain[i];
}

// What turns the 8 elements of a lane. Pairs of neighbours (2i, 2i + 1) are the lane's own; those of halves
// (i, i + ROPE / 2) it shares with the lane ROPE / 16 away.
template <int ROPE, bool NEOX>
struct Angles {
    static constexpr int COUNT = NEOX ? 8 : 4;
    float cos[COUNT], sin[COUNT];

    __device__ __forceinline__ void load(const float4* __restrict__ cache, unsigned long long row, unsigned lane) {
        const float4* const at = cache + (row * (ROPE / 4) + (NEOX ? lane % (ROPE / 16) * 2 : lane));
#pragma unroll
        for (int i = 0; i < COUNT / 4; ++i) {
            put(cos + 4 * i, __ldg(at + i));
            put(sin + 4 * i, __ldg(at + ROPE / 8 + i));
        }
    }

    __device__ __forceinline__ void put(float* to, float4 four) {
        to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    }

    __device__ __forceinline__ void turn_neighbours(float (&x)[8]) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float first = x[2 * i], second = x[2 * i + 1];
            x[2 * i] = first * cos[i] - second * sin[i];
            x[2 * i + 1] = second * cos[i] + first * sin[i];
        }
    }

    __device__ __forceinline__ void turn_half(float (&x)[8], const float (&other)[8], bool second) const {
#pragma unroll
        for (int i = 0; i < 8; ++i) x[i] = x[i] * cos[i] + (second ? other[i] : -other[i]) * sin[i];
    }
};

// Where the heads come from or go to. Strides of tokens count 16-byte vectors.
struct Heads {
    const uint4 *q, *k;
    unsigned q_stride, k_stride;

    __device__ __forceinline__ uint4* of(bool of_q, unsigned token, unsigned vector) const {
        const unsigned long long start = (unsigned long long)token * (of_q ? q_stride : k_stride) + vector;
        return const_cast<uint4*>(of_q ? q : k) + start;
    }
};

// A block takes THREADS / LANES groups of ROWS heads of q (blockIdx.x even) or of k (odd) of one token; blockIdx.y goes
// on where there are more. q and k of a token lie side by side in the grid, so that they find each other's angles in the
// L2.
template <int HEAD, int ROPE, bool NEOX, class Position, int ROWS, int THREADS>
__device__ __forceinline__ void turn(Heads from, Heads to, const uint4* __restrict__ q_weight,
                                     const uint4* __restrict__ k_weight, const float4* __restrict__ cache,
                                     const Position* __restrict__ positions, int q_heads, int k_heads,
                                     unsigned cache_rows, float eps) {
    constexpr unsigned LANES = HEAD / 8;
    const bool of_q = blockIdx.x % 2 == 0;
    const unsigned token = blockIdx.x / 2, lane = threadIdx.x % LANES;
    const unsigned head = (blockIdx.y * (THREADS / LANES) + threadIdx.x / LANES) * ROWS;
    const int left = (of_q ? q_heads : k_heads) - (int)head;
    const uint4* const at = from.of(of_q, token, head * LANES + lane);
    const uint4* const weights = of_q ? q_weight : k_weight;
    const bool turning = ROPE == HEAD || lane < ROPE / 8;

    uint4 x[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) x[r] = load_if(r < left, at + r * LANES);
    const uint4 weight = __ldg(weights + lane);
    const uint4 other_weight = NEOX && turning ? __ldg(weights + (lane ^ ROPE / 16)) : weight;
    // Most often token t stands at position t. Its angles are fetched before the position is known: one trip to memory
    // after the other would take twice as long.
    const unsigned guess = min(token, cache_rows - 1);
    Angles<ROPE, NEOX> angles;
    if (turning) angles.load(cache, guess, lane);
    // Left to itself, the compiler waits for x or the position first and asks for the weights then, to save registers.
    // So both are made to depend on the weights: cache_rows is below 2^31, which the compiler does not know.
    const unsigned nothing = (weight.x | other_weight.x) & (cache_rows >> 31);
    const unsigned long long place = positions[token] | nothing;
    if (turning && place != guess) angles.load(cache, place, lane);

    float squares[ROWS], wide[ROWS][8];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        x[r].x |= nothing;
        squares[r] = sum_of_squares(x[r]);
        weigh(x[r], weight, wide[r]);
        if constexpr (NEOX) {
            float other[8];
            weigh(from_lane(x[r], ROPE / 16), other_weight, other);
            if (turning) angles.turn_half(wide[r], other, lane >= ROPE / 16);
        } else if (turning) {
            angles.turn_neighbours(wide[r]);
        }
    }
#pragma unroll
    for (int step = LANES / 2; step; step /= 2)  // rows inside: their shuffles overlap
#pragma unroll
        for (int r = 0; r < ROWS; ++r) squares[r] += __shfl_xor_sync(~0u, squares[r], step);
    uint4* const put_at = to.of(of_q, token, head * LANES + lane);
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
        if (r < left) put_at[r * LANES] = narrow(wide[r], rsqrtf(squares[r] * (1.0f / HEAD) + eps));
}

template <int HEAD, int ROPE, bool NEOX, class Position, int ROWS, int THREADS, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    heads_of_token(uint4* q, uint4* k, const uint4* __restrict__ q_weight, const uint4* __restrict__ k_weight,
                   const float4* __restrict__ cache, const Position* __restrict__ positions, int q_heads, int k_heads,
                   unsigned q_stride, unsigned k_stride, unsigned cache_rows, float eps) {
    const Heads heads = {q, k, q_stride, k_stride};
    turn<HEAD, ROPE, NEOX, Position, ROWS, THREADS>(heads, heads, q_weight, k_weight, cache, positions, q_heads, k_heads,
                                                    cache_rows, eps);
}

// The same into packed outputs, for graphs that may hold only operators which write to nothing they are given.
template <int HEAD, int ROPE, bool NEOX, class Position, int ROWS, int THREADS, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    heads_apart(const uint4* q, const uint4* k, uint4* q_out, uint4* k_out, const uint4* __restrict__ q_weight,
                const uint4* __restrict__ k_weight, const float4* __restrict__ cache,
                const Position* __restrict__ positions, int q_heads, int k_heads, unsigned q_stride, unsigned k_stride,
                unsigned cache_rows, float eps) {
    const Heads to = {q_out, k_out, q_heads * (HEAD / 8u), k_heads * (HEAD / 8u)};
    turn<HEAD, ROPE, NEOX, Position, ROWS, THREADS>({q, k, q_stride, k_stride}, to, q_weight, k_weight, cache, positions,
                                                    q_heads, k_heads, cache_rows, eps);
}

#include "any_width.cuh"
