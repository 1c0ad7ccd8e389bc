// What a thread loads and stores at a time, 2 to 16 bytes, and the values in it as floats.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <int BYTES> struct VectorOf;
template <> struct VectorOf<16> { using type = uint4; };
template <> struct VectorOf<8> { using type = uint2; };
template <> struct VectorOf<4> { using type = unsigned; };
template <> struct VectorOf<2> { using type = unsigned short; };
template <int BYTES> using Vector = typename VectorOf<BYTES>::type;

template <class T, class V = uint4> constexpr int WIDTH = sizeof(V) / sizeof(T);

template <class T> __device__ __forceinline__ float2 unpacked(unsigned pair);
template <> __device__ __forceinline__ float2 unpacked<__nv_bfloat16>(unsigned pair) {  // the upper half of a float
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}
template <> __device__ __forceinline__ float2 unpacked<__half>(unsigned pair) {
    return __half22float2(*reinterpret_cast<__half2*>(&pair));
}

template <class T> __device__ __forceinline__ unsigned packed_pair(float low, float high);
template <> __device__ __forceinline__ unsigned packed_pair<__nv_bfloat16>(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&pair);
}
template <> __device__ __forceinline__ unsigned packed_pair<__half>(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&pair);
}

template <class T, class V> __device__ __forceinline__ void widen(V vector, float (&wide)[WIDTH<T, V>]) {
    if constexpr (sizeof(V) == 2) {
        wide[0] = unpacked<T>(vector).x;
    } else {
        const unsigned* const words = reinterpret_cast<const unsigned*>(&vector);
#pragma unroll
        for (int i = 0; i < sizeof(V) / 4; ++i) {
            if constexpr (sizeof(T) == 4) {
                wide[i] = __uint_as_float(words[i]);
            } else {
                const float2 pair = unpacked<T>(words[i]);
                wide[2 * i] = pair.x, wide[2 * i + 1] = pair.y;
            }
        }
    }
}

template <class T, class V> __device__ __forceinline__ V narrow(const float (&wide)[WIDTH<T, V>]) {
    V vector;
    if constexpr (sizeof(V) == 2) {
        vector = packed_pair<T>(wide[0], wide[0]);
    } else {
        unsigned* const words = reinterpret_cast<unsigned*>(&vector);
#pragma unroll
        for (int i = 0; i < sizeof(V) / 4; ++i) {
            if constexpr (sizeof(T) == 4)
                words[i] = __float_as_uint(wide[i]);
            else
                words[i] = packed_pair<T>(wide[2 * i], wide[2 * i + 1]);
        }
    }
    return vector;
}

// (x - mean) * scale * weight + bias, rounded once.
template <class T, bool WEIGHT, bool BIAS, class V>
__device__ __forceinline__ V normalised(V vector, float mean, float scale, V weight, V bias) {
    float wide[WIDTH<T, V>], affine[WIDTH<T, V>];
    widen<T>(vector, wide);
#pragma unroll
    for (int i = 0; i < WIDTH<T, V>; ++i) wide[i] = (wide[i] - mean) * scale;
    if (WEIGHT) {
        widen<T>(weight, affine);
#pragma unroll
        for (int i = 0; i < WIDTH<T, V>; ++i) wide[i] *= affine[i];
    }
    if (BIAS) {
        widen<T>(bias, affine);
#pragma unroll
        for (int i = 0; i < WIDTH<T, V>; ++i) wide[i] += affine[i];
    }
    return narrow<T, V>(wide);
}

// Behind a branch ptxas would put off all that only the store needs, such as loads of the gain. A predicate does not
// have this effect.
__device__ __forceinline__ void store_if(bool inside, uint4* to, uint4 v) {
    asm volatile("{ .reg .pred inside; setp.ne.s32 inside, %5, 0; @inside st.global.v4.u32 [%0], {%1, %2, %3, %4}; }"
                 :: "l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"((int)inside)
                 : "memory");
}
__device__ __forceinline__ void store_if(bool inside, uint2* to, uint2 v) {
    asm volatile("{ .reg .pred inside; setp.ne.s32 inside, %3, 0; @inside st.global.v2.u32 [%0], {%1, %2}; }"
                 :: "l"(to), "r"(v.x), "r"(v.y), "r"((int)inside)
                 : "memory");
}
__device__ __forceinline__ void store_if(bool inside, unsigned* to, unsigned v) {
    asm volatile("{ .reg .pred inside; setp.ne.s32 inside, %2, 0; @inside st.global.u32 [%0], %1; }"
                 :: "l"(to), "r"(v), "r"((int)inside)
                 : "memory");
}
__device__ __forceinline__ void store_if(bool inside, unsigned short* to, unsigned short v) {
    asm volatile("{ .reg .pred inside; setp.ne.s32 inside, %2, 0; @inside st.global.u16 [%0], %1; }"
                 :: "l"(to), "h"(v), "r"((int)inside)
                 : "memory");
}
