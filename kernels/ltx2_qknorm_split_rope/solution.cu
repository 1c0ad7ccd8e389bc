// RMSNorm of rows of q and of k over all their heads, then the halves of every head turned against each other: bf16.
//
// A block takes a row, eight columns a thread at a time, and keeps it packed in registers. x, cosines and sines are all
// asked for before anything is waited for; the gains, which all rows share, are read out of the L1 when they are used.
// With few rows the call is all latency: a thread takes eight columns, and the gains come with them (EARLY). A head's
// two halves lie in lanes that find each other by one exclusive or.
//
// Roundings are those of the eager expression: the norm, and the product with the cosine, are rounded to bf16; a
// product with the sine is exact in fp32. Only the order in which squares are added up is our own.
#include <cuda_bf16.h>

constexpr int WIDTH = 8;

__device__ __forceinline__ void widen(uint4 packed, float (&wide)[WIDTH]) {
    const unsigned pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // a bfloat16 is the upper half of a float
        wide[2 * i] = __uint_as_float(pairs[i] << 16);
        wide[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
    }
}

__device__ __forceinline__ uint4 narrow(const float (&wide)[WIDTH]) {
    unsigned pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(wide[2 * i], wide[2 * i + 1]);
        pairs[i] = *reinterpret_cast<const unsigned*>(&pair);
    }
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// Makes the compiler forget that it has widened these before: in twice the registers fewer rows would be in flight.
__device__ __forceinline__ void stay_packed(uint4& packed) {
    asm volatile("" : "+r"(packed.x), "+r"(packed.y), "+r"(packed.z), "+r"(packed.w));
}

__device__ __forceinline__ uint4 from_lane(uint4 packed, int apart) {
    return make_uint4(__shfl_xor_sync(~0u, packed.x, apart), __shfl_xor_sync(~0u, packed.y, apart),
                      __shfl_xor_sync(~0u, packed.z, apart), __shfl_xor_sync(~0u, packed.w, apart));
}

__device__ __forceinline__ float sum_of_warp(float own) {
#pragma unroll
    for (int step = 16; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
    return own;
}

// For all threads of the block, with one barrier.
template <int WARPS> __device__ __forceinline__ float sum_of_row(float own) {
    own = sum_of_warp(own);
    if constexpr (WARPS == 1) return own;
    __shared__ float of_warps[WARPS];
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
    __syncthreads();
    if constexpr (WARPS == 2) return of_warps[0] + of_warps[1];
    if constexpr (WARPS == 4) return (of_warps[0] + of_warps[1]) + (of_warps[2] + of_warps[3]);
    return sum_of_warp(threadIdx.x % 32 < WARPS ? of_warps[threadIdx.x % 32] : 0.f);
}

// gain * (x / rms), rounded; never an fma.
__device__ __forceinline__ uint4 normalised(uint4 x, uint4 weight, float inverse) {
    float wide[WIDTH], gain[WIDTH];
    widen(x, wide), widen(weight, gain);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) wide[i] = __fmul_rn(gain[i], __fmul_rn(inverse, wide[i]));
    return narrow(wide);
}

// round(own * cos) - other * sin in the first half of a head, plus in the second.
__device__ __forceinline__ uint4 turned(uint4 own, uint4 other, uint4 cos, uint4 sin, bool is_second) {
    float mine[WIDTH], theirs[WIDTH], by[WIDTH];
    widen(own, mine), widen(cos, by);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) mine[i] *= by[i];
    widen(narrow(mine), mine), widen(other, theirs), widen(sin, by);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) mine[i] = fmaf(is_second ? theirs[i] : -theirs[i], by[i], mine[i]);
    return narrow(mine);
}

// All 16 bytes at once: of an assignment, the compiler makes four stores where a thread has one vector.
__device__ __forceinline__ void store(__nv_bfloat16* to, uint4 v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

// What there is of q and of k. Strides of the tables count elements, and cos and sin have the same.
struct Side {
    const __nv_bfloat16 *x, *weight, *cos, *sin;
    __nv_bfloat16* out;
    int tokens;
    long long table_batch, table_head, table_token;
};

// Blocks below q.tokens take a token of q, the others one of k; blockIdx.y is the batch. HEAD is a power of two from 16
// to 256, so that heads do not straddle the steps of a row and their halves stay within a warp.
template <int COLS, int HEAD, int THREADS, bool EARLY>
__global__ void __launch_bounds__(THREADS)
    norm_and_turn(const __nv_bfloat16* q, const __nv_bfloat16* q_weight, const __nv_bfloat16* q_cos,
                  const __nv_bfloat16* q_sin, __nv_bfloat16* q_out, int q_tokens, long long q_table_batch,
                  long long q_table_head, long long q_table_token, const __nv_bfloat16* k,
                  const __nv_bfloat16* k_weight, const __nv_bfloat16* k_cos, const __nv_bfloat16* k_sin,
                  __nv_bfloat16* k_out, int k_tokens, long long k_table_batch, long long k_table_head,
                  long long k_table_token, float eps) {
    constexpr int STEP = THREADS * WIDTH, CHUNKS = (COLS + STEP - 1) / STEP, APART = HEAD / 2 / WIDTH;
    const bool of_k = int(blockIdx.x) >= q_tokens;
    const int token = int(blockIdx.x) - (of_k ? q_tokens : 0);
    const Side side =
        of_k ? Side{k, k_weight, k_cos, k_sin, k_out, k_tokens, k_table_batch, k_table_head, k_table_token}
             : Side{q, q_weight, q_cos, q_sin, q_out, q_tokens, q_table_batch, q_table_head, q_table_token};
    const int column = threadIdx.x * WIDTH;
    const long long start = ((long long)blockIdx.y * side.tokens + token) * COLS + column;
    const long long angle = blockIdx.y * side.table_batch + token * side.table_token +
                            column / HEAD * side.table_head + column % (HEAD / 2);
    const auto inside = [=](int c) { return (c + 1) * STEP <= COLS || column + c * STEP < COLS; };
    const auto load = [](const __nv_bfloat16* from) { return __ldg(reinterpret_cast<const uint4*>(from)); };
    const auto table = [=](const __nv_bfloat16* of, int c) {
        return inside(c) ? load(of + angle + c * (STEP / HEAD) * side.table_head) : uint4{};
    };
    const auto gain = [=](int c) { return inside(c) ? load(side.weight + column + c * STEP) : uint4{}; };

    uint4 x[CHUNKS], cos[CHUNKS], sin[CHUNKS], gains[EARLY ? CHUNKS : 1];
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) x[c] = inside(c) ? load(side.x + start + c * STEP) : uint4{};
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        cos[c] = table(side.cos, c), sin[c] = table(side.sin, c);
        if constexpr (EARLY) gains[c] = gain(c);
    }
    // Left to itself, ptxas sums x first and asks for the rest then, to save registers. So x is made to depend on it:
    // no side has 2^31 tokens, which the compiler does not know.
    unsigned any = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        any |= cos[c].x | sin[c].x;
        if constexpr (EARLY) any |= gains[c].x;
    }
    const unsigned nothing = any & (unsigned(side.tokens) >> 31);
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) x[c].x |= nothing;
    float low = 0.f, high = 0.f;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        float wide[WIDTH];
        widen(x[c], wide);
#pragma unroll
        for (int i = 0; i < 4; ++i) low = fmaf(wide[i], wide[i], low), high = fmaf(wide[i + 4], wide[i + 4], high);
        stay_packed(x[c]);
    }
    constexpr bool POWER_OF_TWO = (COLS & (COLS - 1)) == 0;  // then a product is as exact as the division, and short
    const float sum = sum_of_row<THREADS / 32>(low + high);
    const float mean = POWER_OF_TWO ? sum * (1.f / COLS) : __fdiv_rn(sum, COLS);
    const float inverse = rsqrtf(__fadd_rn(mean, eps));
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        const uint4 own = normalised(x[c], EARLY ? gains[EARLY ? c : 0] : gain(c), inverse);
        const uint4 made = turned(own, from_lane(own, APART), cos[c], sin[c], threadIdx.x & APART);
        if (inside(c)) store(side.out + start + c * STEP, made);
    }
}
