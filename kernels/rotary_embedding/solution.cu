// rotary_embedding in bf16. Every access is a vector of 16 bytes, eight bf16 or four fp32; or of 8, 4 or 2, where 16
// would straddle the halves of a head or two rows: `Word` is what a kernel reads at a time.
//
// Plain loads and stores on purpose: on rows of 151 MB, loads past the L1, loads that leave the L2 first and loads that
// bring 256 bytes into the L2 all cost 5 % of the bandwidth. A thread does little and there are many of them, which
// keeps enough bytes in flight: with half as many the same rows took 7 % longer. Strides are in words.
#include <cuda_bf16.h>

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

template <class Word> __device__ __forceinline__ Word read(const Word* from) { return __ldg(from); }
__device__ __forceinline__ float low(u32 word) { return __uint_as_float(word << 16); }
__device__ __forceinline__ float high(u32 word) { return __uint_as_float(word & 0xffff0000u); }
__device__ __forceinline__ u32 packed(float low, float high) {
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<u32*>(&both);
}

// ---- halves: bf16(own * cos) + other * sin, where the first half takes the opposite of the sine ----

// The product is rounded on purpose; that of the sine fits into fp32, so the fused addition rounds no differently.
__device__ __forceinline__ u32 turned(u32 own, u32 other, u32 cosine, u32 sine, float sign) {
    u32 product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(own), "r"(cosine));
    return packed(fmaf(low(other), sign * low(sine), low(product)),
                  fmaf(high(other), sign * high(sine), high(product)));
}
__device__ __forceinline__ uint4 turned(uint4 own, uint4 other, uint4 cosine, uint4 sine, float sign) {
    return {turned(own.x, other.x, cosine.x, sine.x, sign), turned(own.y, other.y, cosine.y, sine.y, sign),
            turned(own.z, other.z, cosine.z, sine.z, sign), turned(own.w, other.w, cosine.w, sine.w, sign)};
}
__device__ __forceinline__ uint2 turned(uint2 own, uint2 other, uint2 cosine, uint2 sine, float sign) {
    return {turned(own.x, other.x, cosine.x, sine.x, sign), turned(own.y, other.y, cosine.y, sine.y, sign)};
}
__device__ __forceinline__ u16 turned(u16 own, u16 other, u16 cosine, u16 sine, float sign) {
    return (u16)turned((u32)own, (u32)other, (u32)cosine, (u32)sine, sign);
}
template <class Word> __device__ __forceinline__ Word turned_first(Word first, Word second, Word cosine, Word sine) {
    return turned(first, second, cosine, sine, -1.0f);
}
template <class Word> __device__ __forceinline__ Word turned_second(Word first, Word second, Word cosine, Word sine) {
    return turned(second, first, cosine, sine, 1.0f);
}
__device__ __forceinline__ uint4 with_signs(uint4 words, u32 flipped) {
    return {words.x ^ flipped, words.y ^ flipped, words.z ^ flipped, words.w ^ flipped};
}
__device__ __forceinline__ uint4 of_lane_across(uint4 mine, int distance) {
    return {__shfl_xor_sync(~0u, mine.x, distance), __shfl_xor_sync(~0u, mine.y, distance),
            __shfl_xor_sync(~0u, mine.z, distance), __shfl_xor_sync(~0u, mine.w, distance)};
}
__device__ __forceinline__ uint4 either(bool which, uint4 one, uint4 other) {
    return {which ? one.x : other.x, which ? one.y : other.y, which ? one.z : other.z, which ? one.w : other.w};
}

// A loop of one turn, which the compiler unrolls after it would have merged two conditions that are the same: the loads
// stay together ahead of everything else. As straight code 1536 tokens of 32 x 64 take 5.58 us instead of 5.47.
#define ONCE _Pragma("unroll") for (int once = 0; once < 1; ++once)

// Both halves a thread: for any width. All is packed, here and in the next three kernels.
template <int VECTORS>
__global__ void __launch_bounds__(1024)
halves(const uint4* __restrict__ x, const uint4* __restrict__ cosines, const uint4* __restrict__ sines,
       uint4* __restrict__ out, u32 pairs) {
    const u32 pair = blockIdx.x * blockDim.x + threadIdx.x;
    uint4 first, second, cosine, sine;
    ONCE if (pair < pairs) {
        const u32 at = 2 * pair - pair % VECTORS;
        first = read(x + at), second = read(x + at + VECTORS);
        cosine = read(cosines + pair), sine = read(sines + pair);
    }
    ONCE if (pair < pairs) {
        const u32 at = 2 * pair - pair % VECTORS;
        out[at] = turned_first(first, second, cosine, sine);
        out[at + VECTORS] = turned_second(first, second, cosine, sine);
    }
}

// The same in shorter words, EACH pairs of them a thread so that as many bytes are in flight.
template <int WORDS, class Word, int EACH>
__global__ void __launch_bounds__(1024)
halves_in_words(const Word* __restrict__ x, const Word* __restrict__ cosines, const Word* __restrict__ sines,
                Word* __restrict__ out, u32 pairs) {
    const u32 start = blockIdx.x * blockDim.x * EACH + threadIdx.x;
    Word first[EACH], second[EACH], cosine[EACH], sine[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        const u32 pair = start + e * blockDim.x;
        if (pair < pairs) {
            const u32 at = 2 * pair - pair % WORDS;
            first[e] = read(x + at), second[e] = read(x + at + WORDS);
            cosine[e] = read(cosines + pair), sine[e] = read(sines + pair);
        }
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        const u32 pair = start + e * blockDim.x;
        if (pair < pairs) {
            const u32 at = 2 * pair - pair % WORDS;
            out[at] = turned_first(first[e], second[e], cosine[e], sine[e]);
            out[at + WORDS] = turned_second(first[e], second[e], cosine[e], sine[e]);
        }
    }
}

// A vector of x a thread, the other half's from a lane nearby: a warp reads and writes 512 bytes without a hole, where
// one that took both halves of a head of 64 would touch half of every line, twice. Both lanes read the same vector of
// the tables, which costs a second load but no traffic. VECTORS in a half, a power of two up to 16.
template <int VECTORS>
__global__ void __launch_bounds__(1024)
halves_by_lanes(const uint4* __restrict__ x, const uint4* __restrict__ cosines, const uint4* __restrict__ sines,
                uint4* __restrict__ out, u32 pairs) {
    const u32 mine = blockIdx.x * blockDim.x + threadIdx.x;
    const bool inside = mine < 2 * pairs;
    uint4 own{}, cosine{}, sine{};
    if (inside) {
        const u32 pair = mine / (2 * VECTORS) * VECTORS + mine % VECTORS;
        own = read(x + mine), cosine = read(cosines + pair), sine = read(sines + pair);
    }
    const uint4 other = of_lane_across(own, VECTORS);
    const u32 flipped = mine & VECTORS ? 0 : 0x80008000u;
    if (inside) out[mine] = turned(own, other, cosine, with_signs(sine, flipped), 1.0f);
}

// Two vectors of x a thread, 32 apart: a warp reads and writes 1 KiB without a hole and no vector of a table twice. A
// lane holds the same half of two pairs; it gives one of them away for the other half of the pair that it keeps, and
// does the same with the results. VECTORS as above; `pairs` is a multiple of 32.
template <int VECTORS>
__global__ void __launch_bounds__(1024)
halves_exchanged(const uint4* __restrict__ x, const uint4* __restrict__ cosines, const uint4* __restrict__ sines,
                 uint4* __restrict__ out, u32 pairs) {
    const u32 lane = threadIdx.x % 32, base = blockIdx.x * blockDim.x + threadIdx.x - lane;
    const bool inside = base < pairs, has_seconds = lane & VECTORS;
    const u32 pair = base + lane / (2 * VECTORS) * VECTORS + lane % VECTORS + (has_seconds ? 16 : 0);
    const u32 near = 2 * base + lane, far = near + 32;
    uint4 from_near, from_far, cosine, sine;
    ONCE if (inside) {
        from_near = read(x + near), from_far = read(x + far);
        cosine = read(cosines + pair), sine = read(sines + pair);
    }
    ONCE if (inside) {
        const uint4 got = of_lane_across(either(has_seconds, from_near, from_far), VECTORS);
        const uint4 first = either(has_seconds, got, from_near), second = either(has_seconds, from_far, got);
        const uint4 new_first = turned_first(first, second, cosine, sine);
        const uint4 new_second = turned_second(first, second, cosine, sine);
        const uint4 back = of_lane_across(either(has_seconds, new_first, new_second), VECTORS);
        out[near] = either(has_seconds, back, new_first);
        out[far] = either(has_seconds, new_second, back);
    }
}

// `halves` through strides; `pairs` are those of one batch, which is blockIdx.y.
template <int WORDS, class Word>
__global__ void __launch_bounds__(1024)
halves_strided(const Word* __restrict__ x, const Word* __restrict__ cosines, const Word* __restrict__ sines,
               Word* __restrict__ out, u32 pairs, u32 heads, u64 x_batch, u64 x_token, u64 cos_batch, u64 cos_head,
               u64 cos_token, u64 sin_batch, u64 sin_head, u64 sin_token) {
    const u32 pair = blockIdx.x * blockDim.x + threadIdx.x;
    if (pair >= pairs) return;
    const u32 column = pair % WORDS, head = pair / WORDS % heads, token = pair / WORDS / heads;
    const u32 batch = blockIdx.y;
    x += batch * x_batch + token * x_token + head * (2 * WORDS) + column;
    const Word first = read(x), second = read(x + WORDS);
    const Word cosine = read(cosines + batch * cos_batch + token * cos_token + head * cos_head + column);
    const Word sine = read(sines + batch * sin_batch + token * sin_token + head * sin_head + column);
    out += 2 * ((u64)batch * pairs + pair) - column;
    out[0] = turned_first(first, second, cosine, sine);
    out[WORDS] = turned_second(first, second, cosine, sine);
}

// ---- adjacent pairs, fp32 tables ----

__device__ __forceinline__ u32 turned_pair(u32 pair, u32 cosine, u32 sine) {
    const float even = low(pair), odd = high(pair), c = __uint_as_float(cosine), s = __uint_as_float(sine);
    return packed(fmaf(-odd, s, even * c), fmaf(even, s, odd * c));
}

__device__ __forceinline__ uint2 turned_pair(uint2 pairs, uint2 cosine, uint2 sine) {
    return {turned_pair(pairs.x, cosine.x, sine.x), turned_pair(pairs.y, cosine.y, sine.y)};
}
__device__ __forceinline__ uint4 turned_pair(uint4 pairs, uint4 cosine, uint4 sine) {
    return {turned_pair(pairs.x, cosine.x, sine.x), turned_pair(pairs.y, cosine.y, sine.y),
            turned_pair(pairs.z, cosine.z, sine.z), turned_pair(pairs.w, cosine.w, sine.w)};
}

// A token a row of the block, whose threads take the same column of HEADS heads each, so that they read the tables once
// for all of those. COLUMNS words in a head; the block is a multiple of them wide. Heads of a token are packed.
template <int COLUMNS, int HEADS, class Word>
__global__ void __launch_bounds__(1024)
adjacent_pairs(const Word* __restrict__ x, const Word* __restrict__ cosines, const Word* __restrict__ sines,
               Word* __restrict__ out, u32 tokens, u32 row, u64 x_batch, u64 x_token, u64 cos_token, u64 sin_token) {
    const u32 token = blockIdx.x * blockDim.y + threadIdx.y, column = threadIdx.x % COLUMNS;
    if (token >= tokens) return;
    x += blockIdx.y * x_batch + token * x_token;
    out += ((u64)blockIdx.y * tokens + token) * row;
    Word mine[HEADS];
#pragma unroll
    for (int head = 0; head < HEADS; ++head) {
        const u32 at = threadIdx.x + head * blockDim.x;
        if (at < row) mine[head] = read(x + at);
    }
    const Word c = read(cosines + token * cos_token + column), s = read(sines + token * sin_token + column);
#pragma unroll
    for (int head = 0; head < HEADS; ++head) {
        const u32 at = threadIdx.x + head * blockDim.x;
        if (at < row) out[at] = turned_pair(mine[head], c, s);
    }
}
