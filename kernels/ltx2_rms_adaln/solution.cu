// y = rms_norm(x) * (1 + scale) + shift in fp32, where x, scale and shift can be read as whole vectors.
//
// A block takes a row. x, scale and shift are all asked for before anything is waited for, one trip to memory, and stay
// packed in registers until the sum of squares is known. A vector is what becomes 16 bytes of output, four columns:
// lanes next to each other then write next to each other. Of eight columns, 16 bytes of bf16, a lane would write two
// vectors, and every store of a warp half of twice as many sectors.
//
// Roundings and the order of the sum are those of torch's own kernels, so that most rows come out bit for bit.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using u32 = unsigned int;
using i64 = long long;

// ---- a word: two values of 16 bits, or one float ----

template <class T> constexpr int IN_WORD = 4 / sizeof(T);

template <class T> __device__ __forceinline__ float2 widened(u32 word);
template <> __device__ __forceinline__ float2 widened<float>(u32 word) { return {__uint_as_float(word), 0.f}; }
template <> __device__ __forceinline__ float2 widened<__half>(u32 word) {
    return __half22float2(*reinterpret_cast<__half2*>(&word));
}
template <> __device__ __forceinline__ float2 widened<__nv_bfloat16>(u32 word) {  // the upper half of a float, twice
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}

// Rounded to T, as it is in production.
template <class T> __device__ __forceinline__ u32 one_more(u32 word);
template <> __device__ __forceinline__ u32 one_more<float>(u32 word) {
    return __float_as_uint(__fadd_rn(1.f, __uint_as_float(word)));
}
template <> __device__ __forceinline__ u32 one_more<__half>(u32 word) {
    const __half2 sum = __hadd2_rn(__float2half2_rn(1.f), *reinterpret_cast<__half2*>(&word));
    return *reinterpret_cast<const u32*>(&sum);
}
template <> __device__ __forceinline__ u32 one_more<__nv_bfloat16>(u32 word) {
    const __nv_bfloat162 sum = __hadd2_rn(__float2bfloat162_rn(1.f), *reinterpret_cast<__nv_bfloat162*>(&word));
    return *reinterpret_cast<const u32*>(&sum);
}

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
    __device__ __forceinline__ void widen(float (&to)[WIDTH]) const {
#pragma unroll
        for (int i = 0; i < WORDS; ++i) {
            const float2 pair = widened<T>(word[i]);
            to[i * IN_WORD<T>] = pair.x;
            if constexpr (IN_WORD<T> == 2 && WIDTH > 1) to[i * 2 + 1] = pair.y;
        }
    }
};

template <int WIDTH> __device__ __forceinline__ void write(float* to, const float (&values)[WIDTH]) {
    if constexpr (WIDTH == 4)
        *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
    else if constexpr (WIDTH == 2)
        *reinterpret_cast<float2*>(to) = make_float2(values[0], values[1]);
    else
        *to = values[0];
}

// For all threads of the block, with one barrier. Four warps are added up as torch does.
template <int WARPS> __device__ __forceinline__ float sum_of_row(float own) {
#pragma unroll
    for (int step = 16; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
    if constexpr (WARPS > 1) {
        __shared__ float of_warps[WARPS];
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
        __syncthreads();
        if constexpr (WARPS == 4) {
            own = (of_warps[0] + of_warps[2]) + (of_warps[1] + of_warps[3]);
        } else {
            own = threadIdx.x % 32 < WARPS ? of_warps[threadIdx.x % 32] : 0.f;
#pragma unroll
            for (int step = 16; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
        }
    }
    return own;
}

// ---- the kernel ----

// blockIdx.x is the token, blockIdx.y the batch. T is x's type, M that of scale and shift. Steps between batches and
// tokens count elements, 0 where one row is for all. Only the last vector of a thread can lie beyond the row. BLOCKS of
// a multiprocessor are what registers are cut for.
template <class T, class M, int COLS, int WIDTH, int THREADS, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    rms_adaln(const T* __restrict__ x, const M* __restrict__ scale, const M* __restrict__ shift,
              float* __restrict__ out, i64 x_batch, i64 x_token, i64 scale_batch, i64 scale_token, i64 shift_batch,
              i64 shift_token, float eps) {
    constexpr int STEP = THREADS * WIDTH, EACH = (COLS + STEP - 1) / STEP;
    using OfX = Vector<T, WIDTH>;
    using OfModulation = Vector<M, WIDTH>;
    const int column = threadIdx.x * WIDTH;
    const i64 batch = blockIdx.y, token = blockIdx.x;
    x += batch * x_batch + token * x_token + column;
    scale += batch * scale_batch + token * scale_token + column;
    shift += batch * shift_batch + token * shift_token + column;
    out += (batch * gridDim.x + token) * COLS + column;
    const auto inside = [=](int v) { return (v + 1) * STEP <= COLS || column + v * STEP < COLS; };

    OfX held[EACH] = {};
    OfModulation by[EACH] = {}, plus[EACH] = {};
#pragma unroll
    for (int v = 0; v < EACH; ++v)
        if (inside(v)) held[v].read(x + v * STEP);
#pragma unroll
    for (int v = 0; v < EACH; ++v)
        if (inside(v)) by[v].read(scale + v * STEP), plus[v].read(shift + v * STEP);
    // Left to itself, ptxas sums x first and asks for the rest then, to save registers. So x is made to depend on it,
    // through a bit of a step that is never set, which the compiler does not know.
    u32 any = 0;
#pragma unroll
    for (int v = 0; v < EACH; ++v) any |= by[v].word[0] | plus[v].word[0];
    const u32 nothing = any & u32(x_token >> 62);
    float squares = 0.f;
#pragma unroll
    for (int v = 0; v < EACH; ++v) {
        float wide[WIDTH];
        held[v].word[0] |= nothing;
        held[v].widen(wide);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) squares = fmaf(wide[i], wide[i], squares);
        // What was widened must not be kept: in twice the registers fewer rows would be in flight.
#pragma unroll
        for (int i = 0; i < OfX::WORDS; ++i) asm volatile("" : "+r"(held[v].word[i]));
    }
    constexpr bool POWER_OF_TWO = (COLS & (COLS - 1)) == 0;  // then a product is as exact as the division, and short
    const float sum = sum_of_row<THREADS / 32>(squares);
    const float inverse = rsqrtf(__fadd_rn(POWER_OF_TWO ? sum * (1.f / COLS) : __fdiv_rn(sum, COLS), eps));
#pragma unroll
    for (int v = 0; v < EACH; ++v)
        if (inside(v)) {
            float value[WIDTH], factor[WIDTH], term[WIDTH];
#pragma unroll
            for (int i = 0; i < OfModulation::WORDS; ++i) by[v].word[i] = one_more<M>(by[v].word[i]);
            held[v].widen(value), by[v].widen(factor), plus[v].widen(term);
#pragma unroll
            for (int i = 0; i < WIDTH; ++i)  // never a multiply-add
                value[i] = __fadd_rn(__fmul_rn(__fmul_rn(value[i], inverse), factor[i]), term[i]);
            write(out + v * STEP, value);
        }
}
