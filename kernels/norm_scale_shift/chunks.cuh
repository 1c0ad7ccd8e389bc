// Chunks: N elements that a thread moves at once, 16 bytes or as few as one element, and their values in fp32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Chunk {
  T at[N];
};

// What one instruction reads.
template <int BYTES>
struct Word;
template <>
struct Word<2> {
  using type = unsigned short;
};
template <>
struct Word<4> {
  using type = unsigned;
};
template <>
struct Word<8> {
  using type = uint2;
};
template <>
struct Word<16> {
  using type = uint4;
};

// Plain loads on purpose: those that bypass the L1 or mark lines to leave the L2 first came out 4 % slower, and stores
// so marked 1 to 2 % on most rows.
template <typename T, int N>
__device__ __forceinline__ Chunk<T, N> load(const T* from) {
  Chunk<T, N> chunk;
  using Part = typename Word<sizeof(chunk) < 16 ? sizeof(chunk) : 16>::type;
#pragma unroll
  for (int part = 0; part < int(sizeof(chunk) / sizeof(Part)); part++)
    reinterpret_cast<Part*>(&chunk)[part] = __ldg(reinterpret_cast<const Part*>(from) + part);
  return chunk;
}

__device__ __forceinline__ float wide(float value) { return value; }
__device__ __forceinline__ float wide(__half value) { return __half2float(value); }
__device__ __forceinline__ float wide(__nv_bfloat16 value) {  // the upper half of a float
  return __uint_as_float(unsigned(reinterpret_cast<const unsigned short&>(value)) << 16);
}

__device__ __forceinline__ float2 wide_pair(const float* from) { return make_float2(from[0], from[1]); }
__device__ __forceinline__ float2 wide_pair(const __half* from) {
  return __half22float2(*reinterpret_cast<const __half2*>(from));
}
__device__ __forceinline__ float2 wide_pair(const __nv_bfloat16* from) {
  const unsigned bits = *reinterpret_cast<const unsigned*>(from);
  return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
}

template <typename T, int N>
__device__ __forceinline__ void widen(const Chunk<T, N>& chunk, float (&values)[N]) {
  if constexpr (N == 1) {
    values[0] = wide(chunk.at[0]);
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const float2 pair = wide_pair(&chunk.at[i]);
      values[i] = pair.x, values[i + 1] = pair.y;
    }
  }
}

// Makes the compiler forget that it has widened these before: in twice the registers fewer rows would be in flight. A
// single element has a register to itself either way.
template <typename T, int N>
__device__ __forceinline__ void stay_packed(Chunk<T, N>& chunk) {
  if constexpr (sizeof(T) == 2 && N > 1) {
#pragma unroll
    for (int i = 0; i < N; i += 2) asm volatile("" : "+r"(*reinterpret_cast<unsigned*>(&chunk.at[i])));
  }
}

__device__ __forceinline__ void put(float* to, float value) { *to = value; }
__device__ __forceinline__ void put(__half* to, float value) { *to = __float2half_rn(value); }
__device__ __forceinline__ void put(__nv_bfloat16* to, float value) { *to = __float2bfloat16_rn(value); }

__device__ __forceinline__ void put_pair(float* to, float first, float second) { to[0] = first, to[1] = second; }
__device__ __forceinline__ void put_pair(__half* to, float first, float second) {
  *reinterpret_cast<__half2*>(to) = __floats2half2_rn(first, second);
}
__device__ __forceinline__ void put_pair(__nv_bfloat16* to, float first, float second) {
  *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(first, second);
}

// Rounds once.
template <typename T, int N>
__device__ __forceinline__ void store(T* to, const float (&values)[N]) {
  Chunk<T, N> chunk;
  if constexpr (N == 1) {
    put(&chunk.at[0], values[0]);
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 2) put_pair(&chunk.at[i], values[i], values[i + 1]);
  }
  *reinterpret_cast<Chunk<T, N>*>(to) = chunk;
}
