// silu(gate) * up for rows [gate | up] of whole 16-byte vectors: fp32 inside, one rounding.
//
// One thread, one piece of the output, counted through all rows: two loads, one store, and the shortest code. A piece is
// a vector of four words or, in a call too small to fill the GPU, a word. The width is a template argument, so that the
// row of a piece is a multiplication and not a division.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <int WORDS> struct alignas(4 * WORDS) Piece {
    unsigned words[WORDS];
};

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

template <class T, int WORDS, int N> __device__ __forceinline__ void widen(Piece<WORDS> piece, float (&wide)[N]) {
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
        if constexpr (sizeof(T) == 4) {
            wide[i] = __uint_as_float(piece.words[i]);
        } else {
            const float2 pair = unpacked<T>(piece.words[i]);
            wide[2 * i] = pair.x, wide[2 * i + 1] = pair.y;
        }
    }
}

template <class T, int WORDS, int N> __device__ __forceinline__ Piece<WORDS> narrow(const float (&wide)[N]) {
    Piece<WORDS> piece;
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
        if constexpr (sizeof(T) == 4)
            piece.words[i] = __float_as_uint(wide[i]);
        else
            piece.words[i] = packed<T>(wide[2 * i], wide[2 * i + 1]);
    }
    return piece;
}

__device__ __forceinline__ float power_of_two(float v) {
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(v));
    return v;
}
__device__ __forceinline__ float reciprocal(float v) {
    asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(v));
    return v;
}

// 1 + e^-gate, what SiLU divides by.
__device__ __forceinline__ float divisor(float gate) { return 1.0f + power_of_two(gate * -1.4426950408889634f); }

// gate becomes gate / (1 + e^-gate) * up.
template <int N> __device__ __forceinline__ void pass(float (&gate)[N], const float (&up)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) gate[i] = gate[i] * reciprocal(divisor(gate[i])) * up[i];
}

// PIECES are those of an output row, `all` those of the output; `step` between rows of x counts pieces.
template <class T, int WORDS, int PIECES>
__global__ void __launch_bounds__(1024) gated_pieces(const Piece<WORDS>* __restrict__ x, Piece<WORDS>* __restrict__ out,
                                                     unsigned all, long long step) {
    const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= all) return;
    const unsigned row = at / PIECES, column = at - row * PIECES;
    const Piece<WORDS>* const from = x + row * step + column;
    float gate[4 * WORDS / sizeof(T)], up[4 * WORDS / sizeof(T)];
    widen<T>(from[0], gate);
    widen<T>(from[PIECES], up);
    pass(gate, up);
    out[at] = narrow<T, WORDS>(gate);
}
