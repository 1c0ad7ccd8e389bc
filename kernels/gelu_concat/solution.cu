// [attended | gelu(mlp)] for rows of whole 16-byte vectors, GELU in its tanh form: fp32 inside, one rounding.
//
// One thread, one vector of the output, counted through all rows: one load, one store, and the shortest code. Both
// widths are template arguments, so that the row of a vector is a multiplication and not a division; where they are
// multiples of 32 vectors, as in production, a warp copies or takes the GELU, never both.
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

__device__ __forceinline__ float power_of_two(float v) {
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(v));
    return v;
}
__device__ __forceinline__ float reciprocal(float v) {
    asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(v));
    return v;
}

// GELU in its tanh form is x times the sigmoid of 2 sqrt(2/pi) (x + 0.044715 x^3), and that is 1 / (1 + 2^exponent):
// 1 + tanh would lose the tail of negative x. An infinite x^2 makes the exponent infinite, and never a NaN.
constexpr float SLOPE = -2.302208198f, CUBIC = -0.1029432396f;  // -2 sqrt(2/pi) log2(e), and 0.044715 of it
__device__ __forceinline__ float exponent(float x) { return x * fmaf(x * x, CUBIC, SLOPE); }
__device__ __forceinline__ float divisor(float x) { return 1.0f + power_of_two(exponent(x)); }

// 1 / a is b / (a * b), so that one reciprocal does for two: three instructions of the special function unit for two
// outputs instead of four. That needs a product of two divisors in range, 2^61 each: a vector with an x below -7.5, or
// with a NaN, which would spoil its neighbor, takes a reciprocal for each.
template <class T> __device__ __forceinline__ uint4 gelu(uint4 vector) {
    unsigned words[4] = {vector.x, vector.y, vector.z, vector.w};
    float2 pairs[4];
    bool common = true;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        pairs[i] = unpacked<T>(words[i]);
        common = common && pairs[i].x >= -7.5f && pairs[i].y >= -7.5f;
    }
    if (common) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float first = divisor(pairs[i].x), second = divisor(pairs[i].y), both = reciprocal(first * second);
            words[i] = packed<T>(pairs[i].x * (second * both), pairs[i].y * (first * both));
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            words[i] = packed<T>(pairs[i].x * reciprocal(divisor(pairs[i].x)),
                                 pairs[i].y * reciprocal(divisor(pairs[i].y)));
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// Nothing rounds fp32 afterwards, and 1 + a small power is too coarse for it: off by more than torch's GELU is. So this
// takes the smaller of the sigmoids of both signs, which keeps its digits, and for x above 0 what is left of 1.
template <> __device__ __forceinline__ uint4 gelu<float>(uint4 vector) {
    const auto one = [](unsigned word) {
        const float x = __uint_as_float(word), power = power_of_two(-fabsf(exponent(x)));
        const float smaller = power * reciprocal(1.0f + power);
        return __float_as_uint(x * (x > 0.0f ? 1.0f - smaller : smaller));
    };
    return make_uint4(one(vector.x), one(vector.y), one(vector.z), one(vector.w));
}

// ATTENDED and MLP are the vectors of a row's parts, `all` those of the output; the steps between rows count vectors.
template <class T, unsigned ATTENDED, unsigned MLP>
__global__ void __launch_bounds__(1024, 2)
    joined_vectors(const uint4* __restrict__ attended, const uint4* __restrict__ mlp, uint4* __restrict__ out,
                   unsigned all, long long attended_step, long long mlp_step) {
    const unsigned vector = blockIdx.x * blockDim.x + threadIdx.x;
    if (vector >= all) return;
    const unsigned row = vector / (ATTENDED + MLP), column = vector - row * (ATTENDED + MLP);
    if (column < ATTENDED)
        out[vector] = __ldg(attended + row * attended_step + column);
    else
        out[vector] = gelu<T>(__ldg(mlp + row * mlp_step + (column - ATTENDED)));
}
