// y = rms_norm(x) * (1 + scale) + shift in fp32, twice of the same norm, where everything can be read as whole vectors.
//
// A block takes a row and keeps it, packed, between its sum of squares and its output: four fifths of the traffic are
// what it writes. A vector is what becomes 16 bytes of an output, four columns: lanes next to each other then write
// next to each other. Of eight columns, 16 bytes of bf16, a lane would write two vectors, and each store of a warp
// would touch twice as many sectors and fill half of each. With few rows the call is all latency, and the modulation
// comes with x (EARLY). With many it comes out of the L1 when it is used: registers are rows in flight.
//
// Roundings and the order of the sum are those of torch's own kernels: production's rows are bit-identical to eager's.
// Torch gives a row 128 threads; a block of twice as many is two teams of them, each with half of the row.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using u32 = unsigned int;
using i64 = long long;

// ---- a word: two values of 16 bits, or one float ----

template <class T> constexpr int IN_WORD = 4 / sizeof(T);

template <class T> struct Pair;
template <> struct Pair<__nv_bfloat16> { using type = __nv_bfloat162; };
template <> struct Pair<__half> { using type = __half2; };
template <class P> __device__ __forceinline__ P pair_of(u32 word) { return *reinterpret_cast<P*>(&word); }
template <class P> __device__ __forceinline__ u32 word_of(P pair) { return *reinterpret_cast<u32*>(&pair); }

template <class T> __device__ __forceinline__ float2 widened(u32 word);
template <> __device__ __forceinline__ float2 widened<float>(u32 word) { return {__uint_as_float(word), 0.f}; }
template <> __device__ __forceinline__ float2 widened<__half>(u32 word) {
    return __half22float2(pair_of<__half2>(word));
}
template <> __device__ __forceinline__ float2 widened<__nv_bfloat16>(u32 word) {  // the upper half of a float, twice
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}

template <class T> __device__ __forceinline__ u32 rounded(float low, float high);
template <> __device__ __forceinline__ u32 rounded<float>(float low, float) { return __float_as_uint(low); }
template <> __device__ __forceinline__ u32 rounded<__half>(float low, float high) {
    return word_of(__floats2half2_rn(low, high));
}
template <> __device__ __forceinline__ u32 rounded<__nv_bfloat16>(float low, float high) {
    return word_of(__floats2bfloat162_rn(low, high));
}

// Rounded to T, as every step of the modulation is in production.
template <class T> __device__ __forceinline__ u32 sum(u32 a, u32 b) {
    if constexpr (sizeof(T) == 4) return __float_as_uint(__fadd_rn(__uint_as_float(a), __uint_as_float(b)));
    else {
        using P = typename Pair<T>::type;
        return word_of<P>(__hadd2_rn(pair_of<P>(a), pair_of<P>(b)));
    }
}
template <class T> constexpr u32 ONE = 0x3f800000u;
template <> constexpr u32 ONE<__nv_bfloat16> = 0x3f803f80u;
template <> constexpr u32 ONE<__half> = 0x3c003c00u;

// ---- vectors of WIDTH values: four, or two or one where rows do not begin and end at whole vectors ----

template <class T, int WIDTH> struct Vector {
    static constexpr int WORDS = WIDTH > IN_WORD<T> ? WIDTH / IN_WORD<T> : 1;
    u32 word[WORDS];

    __device__ __forceinline__ void read(const T* from) {
        constexpr int BYTES = WIDTH * sizeof(T);
        if constexpr (BYTES == 16) {
            const uint4 v = __ldg(reinterpret_cast<const uint4*>(from));
            word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
        } else if constexpr (BYTES == 8) {
            const uint2 v = __ldg(reinterpret_cast<const uint2*>(from));
            word[0] = v.x, word[1] = v.y;
        } else if constexpr (BYTES == 4) {
            word[0] = __ldg(reinterpret_cast<const u32*>(from));
        } else {
            word[0] = __ldg(reinterpret_cast<const unsigned short*>(from));
        }
    }
    // Leaves the L1 to the modulation, for the vectors of x at production's width: four values of 16 bits.
    __device__ __forceinline__ void read_once(const T* from) {
        if constexpr (WIDTH * sizeof(T) == 8)
            asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                         : "=r"(word[0]), "=r"(word[1])
                         : "l"(from));
        else
            read(from);
    }
    __device__ __forceinline__ void widen(float (&to)[WIDTH]) const {
#pragma unroll
        for (int i = 0; i < WORDS; ++i) {
            const float2 pair = widened<T>(word[i]);
            to[i * IN_WORD<T>] = pair.x;
            if constexpr (IN_WORD<T> == 2 && WIDTH > 1) to[i * 2 + 1] = pair.y;
        }
    }
    __device__ __forceinline__ void narrow(const float (&from)[WIDTH]) {
#pragma unroll
        for (int i = 0; i < WORDS; ++i) {
            if constexpr (IN_WORD<T> == 2 && WIDTH > 1) word[i] = rounded<T>(from[2 * i], from[2 * i + 1]);
            else word[i] = rounded<T>(from[i], 0.f);
        }
    }
    __device__ __forceinline__ void add(const Vector& other) {
#pragma unroll
        for (int i = 0; i < WORDS; ++i) word[i] = sum<T>(word[i], other.word[i]);
    }
    __device__ __forceinline__ void add_one() {
#pragma unroll
        for (int i = 0; i < WORDS; ++i) word[i] = sum<T>(ONE<T>, word[i]);
    }
};

// normal * factor + term, never as a multiply-add.
template <class M, int WIDTH>
__device__ __forceinline__ void write(float* to, const float (&normal)[WIDTH], const Vector<M, WIDTH>& factor,
                                      const Vector<M, WIDTH>& term) {
    float by[WIDTH], plus[WIDTH];
    factor.widen(by), term.widen(plus);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) by[i] = __fadd_rn(__fmul_rn(normal[i], by[i]), plus[i]);
    if constexpr (WIDTH == 4)
        *reinterpret_cast<float4*>(to) = make_float4(by[0], by[1], by[2], by[3]);
    else if constexpr (WIDTH == 2)
        *reinterpret_cast<float2*>(to) = make_float2(by[0], by[1]);
    else
        *to = by[0];
}

// The sum of what the threads of the last team hold, four warps in torch's order, for all threads of the block. Takes one
// barrier.
template <int TEAM, int TEAMS> __device__ __forceinline__ float sum_of_row(float own) {
    constexpr int WARPS = TEAM / 32;
    if (TEAMS == 1 || threadIdx.x / TEAM == TEAMS - 1) {
#pragma unroll
        for (int step = 16; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
    }
    if constexpr (WARPS > 1) {
        __shared__ float warp_sums[WARPS];
        if (threadIdx.x / TEAM == TEAMS - 1 && threadIdx.x % 32 == 0) warp_sums[threadIdx.x % TEAM / 32] = own;
        __syncthreads();
        if constexpr (WARPS == 4) {
            own = (warp_sums[0] + warp_sums[2]) + (warp_sums[1] + warp_sums[3]);
        } else {
            own = threadIdx.x % 32 < WARPS ? warp_sums[threadIdx.x % 32] : 0.f;
#pragma unroll
            for (int step = 16; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
        }
    }
    return own;
}

// ---- where the modulation comes from: 0 and 2 are the scales, 1 and 3 the shifts ----

template <class M> struct Given {
    const M* row[4];

    template <int WIDTH> __device__ __forceinline__ Vector<M, WIDTH> operator()(int which, int column) const {
        Vector<M, WIDTH> found;
        found.read(row[which] + column);
        return found;
    }
};

// Row `which` of the table, cast to M, plus that part of the embedding, in M.
template <class M, class TABLE, int COLS> struct Embedded {
    const M* embedding;
    const TABLE* table;

    template <int WIDTH> __device__ __forceinline__ Vector<M, WIDTH> operator()(int which, int column) const {
        Vector<TABLE, WIDTH> learned;
        Vector<M, WIDTH> found, cast;
        learned.read(table + which * COLS + column), found.read(embedding + which * COLS + column);
        float wide[WIDTH];
        learned.widen(wide), cast.narrow(wide), found.add(cast);
        return found;
    }
};

// ---- the kernels ----

// A thread's part of the row that begins at x; its last vectors may lie beyond. `never` is 0, and not known to be.
template <class T, class M, int COLS, int WIDTH, int THREADS, bool EARLY, class Modulation>
__device__ __forceinline__ void modulate_twice(const T* x, const Modulation& modulation, float* first, float* second,
                                               u32 never, float eps) {
    constexpr int TORCHS_THREADS = 128;  // of a row
    constexpr int TEAM = THREADS == 2 * TORCHS_THREADS ? TORCHS_THREADS : THREADS, TEAMS = THREADS / TEAM;
    constexpr int STEP = TEAM * WIDTH, EACH = (COLS + STEP * TEAMS - 1) / (STEP * TEAMS), PART = STEP * EACH;
    const int team = threadIdx.x / TEAM, column = team * PART + threadIdx.x % TEAM * WIDTH;
    const auto inside = [=](int v) {
        return PART * (TEAMS - 1) + (v + 1) * STEP <= COLS || column + v * STEP < COLS;
    };
    Vector<T, WIDTH> held[EACH] = {};
    Vector<M, WIDTH> early[EARLY ? EACH : 1][4] = {};
#pragma unroll
    for (int v = 0; v < EACH; ++v)  // every load is under way before the first is used
        if (inside(v)) held[v].read_once(x + column + v * STEP);
    if constexpr (EARLY) {
#pragma unroll
        for (int v = 0; v < EACH; ++v)
#pragma unroll
            for (int m = 0; m < 4; ++m)
                if (inside(v)) early[v][m] = modulation.template operator()<WIDTH>(m, column + v * STEP);
        // Left to itself, ptxas sums x first and asks for the rest then: a second trip to memory. So x is made to
        // depend on it.
        u32 any = 0;
#pragma unroll
        for (int v = 0; v < EACH; ++v)
#pragma unroll
            for (int m = 0; m < 4; ++m) any |= early[v][m].word[0];
#pragma unroll
        for (int v = 0; v < EACH; ++v) held[v].word[0] |= any & never;
    }
    // Torch's threads go through the whole row; here a team goes on with the sums of the one before it.
    float squares = 0.f;
    __shared__ float partial_sums[TEAMS > 1 ? TEAM : 1];
#pragma unroll
    for (int turn = 0; turn < TEAMS; ++turn) {
        if (turn > 0) __syncthreads();
        if (TEAMS > 1 && turn != team) continue;
        if (turn > 0) squares = partial_sums[threadIdx.x % TEAM];
#pragma unroll
        for (int v = 0; v < EACH; ++v) {
            float wide[WIDTH];
            held[v].widen(wide);
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) squares = fmaf(wide[i], wide[i], squares);
        }
        if (turn + 1 < TEAMS) partial_sums[threadIdx.x % TEAM] = squares;
    }
    // What was widened must not be kept: in twice the registers fewer rows would be in flight.
#pragma unroll
    for (int v = 0; v < EACH; ++v)
#pragma unroll
        for (int i = 0; i < Vector<T, WIDTH>::WORDS; ++i) asm volatile("" : "+r"(held[v].word[i]));
    constexpr bool POWER_OF_TWO = (COLS & (COLS - 1)) == 0;  // then a product is as exact as the division, and short
    const float sum = sum_of_row<TEAM, TEAMS>(squares);
    const float inverse = rsqrtf(__fadd_rn(POWER_OF_TWO ? sum * (1.f / COLS) : __fdiv_rn(sum, COLS), eps));
#pragma unroll
    for (int v = 0; v < EACH; ++v)
        if (inside(v)) {
            const int at = column + v * STEP;
            float normal[WIDTH];
            held[v].widen(normal);
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) normal[i] = __fmul_rn(normal[i], inverse);
            const auto part = [&](int m) {
                return EARLY ? early[EARLY ? v : 0][m] : modulation.template operator()<WIDTH>(m, at);
            };
#pragma unroll
            for (int m = 0; m < 4; m += 2) {
                Vector<M, WIDTH> factor = part(m);
                factor.add_one();
                write((m == 0 ? first : second) + at, normal, factor, part(m + 1));
            }
        }
}

// blockIdx.x is the token, blockIdx.y the batch. T is x's type, M that of the modulation. Steps between batches and
// tokens count elements, 0 where one row is for all. BLOCKS of a multiprocessor are what registers are cut for.
template <class T, class M, int COLS, int WIDTH, int THREADS, int BLOCKS, bool EARLY>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    dual_modulate(const T* __restrict__ x, const M* __restrict__ scale0, const M* __restrict__ shift0,
                  const M* __restrict__ scale1, const M* __restrict__ shift1, float* __restrict__ first,
                  float* __restrict__ second, i64 x_batch, i64 x_token, i64 batch_step, i64 token_step, float eps) {
    const i64 batch = blockIdx.y, token = blockIdx.x, row = (batch * gridDim.x + token) * COLS;
    const i64 at = batch * batch_step + token * token_step;
    const Given<M> modulation = {{scale0 + at, shift0 + at, scale1 + at, shift1 + at}};
    modulate_twice<T, M, COLS, WIDTH, THREADS, EARLY>(x + batch * x_batch + token * x_token, modulation, first + row,
                                                      second + row, u32(x_token >> 62), eps);
}

template <class T, class M, class TABLE, int COLS, int WIDTH, int THREADS, int BLOCKS, bool EARLY>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    dual_modulate_from_temb(const T* __restrict__ x, const M* __restrict__ embedding,
                            const TABLE* __restrict__ table, float* __restrict__ first, float* __restrict__ second,
                            i64 x_batch, i64 x_token, i64 batch_step, i64 token_step, float eps) {
    const i64 batch = blockIdx.y, token = blockIdx.x, row = (batch * gridDim.x + token) * COLS;
    const Embedded<M, TABLE, COLS> modulation = {embedding + batch * batch_step + token * token_step, table};
    modulate_twice<T, M, COLS, WIDTH, THREADS, EARLY>(x + batch * x_batch + token * x_token, modulation, first + row,
                                                      second + row, u32(x_token >> 62), eps);
}
