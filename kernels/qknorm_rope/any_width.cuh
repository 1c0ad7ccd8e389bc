// Heads of any even width, in vectors of WIDTH elements: 8, or fewer where a vector would straddle a pair or a head.
//
// LANES lanes of a warp share a head, as many as it takes, not only powers of two: 104 columns are 13 lanes and a warp
// holds two heads. A lane takes EACH units, LANES apart: one vector of neighbours, or with NEOX the two vectors whose
// elements are turned against each other, so that no lane needs another's. What is not turned comes in units as well.
// As in solution.cu, everything is asked for before anything is waited for.
#pragma once
#include <cuda_bf16.h>

// Up to 16 bytes; a single element lies in the lower half of its word.
template <int WIDTH> struct Vector {
    static constexpr int WORDS = (WIDTH + 1) / 2;
    unsigned words[WORDS];

    __device__ __forceinline__ void load_if(bool there, const __nv_bfloat16* at) {
        const unsigned yes = there;
        if constexpr (WIDTH == 8) {
            const uint4 all = ::load_if(there, reinterpret_cast<const uint4*>(at));
            words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
        } else if constexpr (WIDTH == 4) {
            asm volatile("{\n.reg .pred there;\nsetp.ne.u32 there, %3, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\n"
                         "@there ld.global.v2.b32 {%0, %1}, [%2];\n}"
                         : "=r"(words[0]), "=r"(words[1]) : "l"(at), "r"(yes));
        } else if constexpr (WIDTH == 2) {
            asm volatile("{\n.reg .pred there;\nsetp.ne.u32 there, %2, 0;\nmov.b32 %0, 0;\n"
                         "@there ld.global.b32 %0, [%1];\n}"
                         : "=r"(words[0]) : "l"(at), "r"(yes));
        } else {
            asm volatile("{\n.reg .pred there;\nsetp.ne.u32 there, %2, 0;\nmov.b32 %0, 0;\n"
                         "@there ld.global.u16 %0, [%1];\n}"
                         : "=r"(words[0]) : "l"(at), "r"(yes));
        }
    }

    __device__ __forceinline__ void load(const __nv_bfloat16* __restrict__ at) {
        if constexpr (WIDTH == 8) {
            const uint4 all = __ldg(reinterpret_cast<const uint4*>(at));
            words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
        } else if constexpr (WIDTH == 4) {
            const uint2 both = __ldg(reinterpret_cast<const uint2*>(at));
            words[0] = both.x, words[1] = both.y;
        } else if constexpr (WIDTH == 2) {
            words[0] = __ldg(reinterpret_cast<const unsigned*>(at));
        } else {
            words[0] = __ldg(reinterpret_cast<const unsigned short*>(at));
        }
    }

    __device__ __forceinline__ void store(__nv_bfloat16* at) const {
        if constexpr (WIDTH == 8)
            *reinterpret_cast<uint4*>(at) = make_uint4(words[0], words[1], words[2], words[3]);
        else if constexpr (WIDTH == 4)
            *reinterpret_cast<uint2*>(at) = make_uint2(words[0], words[1]);
        else if constexpr (WIDTH == 2)
            *reinterpret_cast<unsigned*>(at) = words[0];
        else
            *reinterpret_cast<unsigned short*>(at) = (unsigned short)words[0];
    }

    __device__ __forceinline__ float element(int i) const {
        return __uint_as_float(i % 2 ? words[i / 2] & 0xffff0000u : words[i / 2] << 16);
    }

    __device__ __forceinline__ void put(const float* from) {
#pragma unroll
        for (int i = 0; i < WORDS; ++i) {
            const __nv_bfloat162 pair = __floats2bfloat162_rn(from[2 * i], WIDTH > 1 ? from[2 * i + 1] : 0.0f);
            words[i] = *reinterpret_cast<const unsigned*>(&pair);
        }
    }
};

template <int COUNT> __device__ __forceinline__ void load_floats(float (&to)[COUNT], const float* __restrict__ at) {
    if constexpr (COUNT % 4 == 0) {
#pragma unroll
        for (int i = 0; i < COUNT; i += 4) {
            const float4 four = __ldg(reinterpret_cast<const float4*>(at + i));
            to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
        }
    } else if constexpr (COUNT == 2) {
        const float2 two = __ldg(reinterpret_cast<const float2*>(at));
        to[0] = two.x, to[1] = two.y;
    } else {
        to[0] = __ldg(at);
    }
}

// For all LANES lanes that begin at `first`. Halves the lanes, of which the last may be missing, then tells all.
template <int LANES, int ROWS>
__device__ __forceinline__ void sum_of_lanes(float (&own)[ROWS], int lane, int first) {
    constexpr bool EVEN = (LANES & (LANES - 1)) == 0;
    constexpr int HALF = LANES > 16 ? 16 : LANES > 8 ? 8 : LANES > 4 ? 4 : LANES > 2 ? 2 : LANES > 1 ? 1 : 0;
#pragma unroll
    for (int step = HALF; step; step /= 2)
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const float other = EVEN ? __shfl_xor_sync(~0u, own[r], step) : __shfl_down_sync(~0u, own[r], step);
            if (EVEN || step < HALF || lane < LANES - HALF) own[r] += other;
        }
    if constexpr (!EVEN) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) own[r] = __shfl_sync(~0u, own[r], first);
    }
}

// Strides of tokens count elements. `from` and `to` may be the same memory.
struct Places {
    __nv_bfloat16 *q, *k;
    long long q_stride, k_stride;

    __device__ __forceinline__ __nv_bfloat16* of(bool of_q, unsigned token, unsigned element) const {
        return (of_q ? q : k) + (token * (of_q ? q_stride : k_stride) + element);
    }
};

// Blocks and tokens as in solution.cu, but the ROWS heads of a group of lanes lie as far apart as there are groups.
template <int HEAD, int ROPE, bool NEOX, class Position, int WIDTH, int LANES, int ROWS, int THREADS>
__device__ __forceinline__ void turn_any(Places from, Places to, const __nv_bfloat16* __restrict__ q_weight,
                                         const __nv_bfloat16* __restrict__ k_weight, const float* __restrict__ cache,
                                         const Position* __restrict__ positions, int q_heads, int k_heads,
                                         unsigned cache_rows, float eps) {
    constexpr int PIECES = NEOX ? 2 : 1, UNIT = WIDTH * PIECES, PAIRS = UNIT / 2;
    constexpr int UNITS = HEAD / UNIT, TURNED = ROPE / UNIT, EACH = (UNITS + LANES - 1) / LANES;
    constexpr int GROUPS_OF_WARP = 32 / LANES, GROUPS = THREADS / 32 * GROUPS_OF_WARP;
    const int lane_of_warp = threadIdx.x % 32, lane = lane_of_warp % LANES, group_of_warp = lane_of_warp / LANES;
    const int first_of_warp = blockIdx.y * (GROUPS * ROWS) + threadIdx.x / 32 * GROUPS_OF_WARP;
    const bool of_q = blockIdx.x % 2 == 0;
    const int heads = of_q ? q_heads : k_heads;
    if (first_of_warp >= heads) return;
    const unsigned token = blockIdx.x / 2, head = first_of_warp + group_of_warp;
    const int left = group_of_warp < GROUPS_OF_WARP ? heads - (int)head : 0;
    const __nv_bfloat16* const at = from.of(of_q, token, head * HEAD);
    const __nv_bfloat16* const weights = of_q ? q_weight : k_weight;
    const auto is_inside = [=](int e) { return UNITS % LANES == 0 || e < EACH - 1 || lane + e * LANES < UNITS; };
    const auto unit = [=](int e) { return is_inside(e) ? lane + e * LANES : UNITS - 1; };  // a lane beyond reads the last
    const auto is_turned = [=](int e) { return ROPE == HEAD || unit(e) < TURNED; };
    const auto place = [=](int e, int piece) {
        if constexpr (!NEOX) return unit(e) * WIDTH;
        return unit(e) * WIDTH + (is_turned(e) ? piece * (ROPE / 2) : ROPE / 2 + piece * ((HEAD - ROPE) / 2));
    };

    Vector<WIDTH> x[ROWS][EACH][PIECES], gain[EACH][PIECES];
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int e = 0; e < EACH; ++e)
#pragma unroll
            for (int p = 0; p < PIECES; ++p)
                x[r][e][p].load_if(r * GROUPS < left && is_inside(e), at + (r * (GROUPS * HEAD) + place(e, p)));
    unsigned any = 0;
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int e = 0; e < EACH; ++e)
#pragma unroll
            for (int p = 0; p < PIECES; ++p) any |= x[r][e][p].words[0];
#pragma unroll
    for (int e = 0; e < EACH; ++e)
#pragma unroll
        for (int p = 0; p < PIECES; ++p) gain[e][p].load(weights + place(e, p)), any |= gain[e][p].words[0];
    float cos[EACH][PAIRS], sin[EACH][PAIRS];
    const auto load_angles = [&](unsigned long long row) {
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            const float* const angles = cache + (row * ROPE + (is_turned(e) ? unit(e) : 0) * PAIRS);
            load_floats(cos[e], angles), load_floats(sin[e], angles + ROPE / 2);
        }
    };
    // The angles of a guess, as in solution.cu. Left to itself, ptxas asks for the later heads when the first is done. So
    // what comes first is made to depend on every load, in appearance.
    const unsigned guess = min(token, cache_rows - 1);
    load_angles(guess);
#pragma unroll
    for (int e = 0; e < EACH; ++e)
#pragma unroll
        for (int i = 0; i < PAIRS; i += 4) any |= __float_as_uint(cos[e][i]) | __float_as_uint(sin[e][i]);
    const unsigned nothing = any & (cache_rows >> 31);
    const unsigned long long position = positions[token] | nothing;
    if (position != guess) load_angles(position);

    float squares[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        squares[r] = 0.0f, x[r][0][0].words[0] |= nothing;
#pragma unroll
        for (int e = 0; e < EACH; ++e)
#pragma unroll
            for (int i = 0; i < UNIT; ++i) {
                const float wide = x[r][e][i / WIDTH].element(i % WIDTH);
                squares[r] = fmaf(wide, wide, squares[r]);
            }
    }
    sum_of_lanes<LANES>(squares, lane, lane_of_warp - lane);
    __nv_bfloat16* const put_at = to.of(of_q, token, head * HEAD);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const float scale = rsqrtf(squares[r] * (1.0f / HEAD) + eps);
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            float wide[UNIT];
#pragma unroll
            for (int i = 0; i < UNIT; ++i)
                wide[i] = x[r][e][i / WIDTH].element(i % WIDTH) * gain[e][i / WIDTH].element(i % WIDTH) * scale;
            if (is_turned(e)) {
#pragma unroll
                for (int i = 0; i < PAIRS; ++i) {
                    float &one = wide[NEOX ? i : 2 * i], &other = wide[NEOX ? i + WIDTH : 2 * i + 1];
                    const float was = one;
                    one = was * cos[e][i] - other * sin[e][i], other = other * cos[e][i] + was * sin[e][i];
                }
            }
#pragma unroll
            for (int p = 0; p < PIECES; ++p) {
                Vector<WIDTH> made;
                made.put(wide + p * WIDTH);
                if (r * GROUPS < left && is_inside(e)) made.store(put_at + (r * (GROUPS * HEAD) + place(e, p)));
            }
        }
    }
}

template <int HEAD, int ROPE, bool NEOX, class Position, int WIDTH, int LANES, int ROWS, int THREADS>
__global__ void __launch_bounds__(THREADS)
    any_width_of_token(__nv_bfloat16* q, __nv_bfloat16* k, const __nv_bfloat16* __restrict__ q_weight,
                       const __nv_bfloat16* __restrict__ k_weight, const float* __restrict__ cache,
                       const Position* __restrict__ positions, int q_heads, int k_heads, long long q_stride,
                       long long k_stride, unsigned cache_rows, float eps) {
    const Places places = {q, k, q_stride, k_stride};
    turn_any<HEAD, ROPE, NEOX, Position, WIDTH, LANES, ROWS, THREADS>(places, places, q_weight, k_weight, cache,
                                                                      positions, q_heads, k_heads, cache_rows, eps);
}

// Into packed outputs.
template <int HEAD, int ROPE, bool NEOX, class Position, int WIDTH, int LANES, int ROWS, int THREADS>
__global__ void __launch_bounds__(THREADS)
    any_width_apart(__nv_bfloat16* q, __nv_bfloat16* k, __nv_bfloat16* q_out, __nv_bfloat16* k_out,
                    const __nv_bfloat16* __restrict__ q_weight, const __nv_bfloat16* __restrict__ k_weight,
                    const float* __restrict__ cache, const Position* __restrict__ positions, int q_heads, int k_heads,
                    long long q_stride, long long k_stride, unsigned cache_rows, float eps) {
    const Places to = {q_out, k_out, (long long)q_heads * HEAD, (long long)k_heads * HEAD};
    turn_any<HEAD, ROPE, NEOX, Position, WIDTH, LANES, ROWS, THREADS>({q, k, q_stride, k_stride}, to, q_weight, k_weight,
                                                                      cache, positions, q_heads, k_heads, cache_rows,
                                                                      eps);
}
