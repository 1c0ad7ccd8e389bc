// Instructions of the GPU that C++ has no words for, and 16-byte vectors of values.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <class T> constexpr int WIDTH = 16 / sizeof(T);
template <class T> constexpr bool IS_HALF = false;
template <> constexpr bool IS_HALF<__half> = true;

// What C++ has no words for.

__device__ __forceinline__ float power_of_two(float exponent) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(exponent));
    return power;
}
__device__ __forceinline__ float reciprocal(float value) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
}
// The smaller of two; unlike that of C++, what is no number stays none.
__device__ __forceinline__ float at_most(float value, float limit) {
    float result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(value), "f"(limit));
    return result;
}

// a * b + c of two values.
__device__ __forceinline__ unsigned fma_pair(unsigned a, unsigned b, unsigned c, const __half*) {
    unsigned result;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
}
__device__ __forceinline__ unsigned fma_pair(unsigned a, unsigned b, unsigned c, const __nv_bfloat16*) {
    unsigned result;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
}

// The values of every quad of lanes, two or four of each, times themselves and times `ones`, added to `sums`: see
// Statistics.
__device__ __forceinline__ void multiply_add(float (&sums)[4], unsigned pair, unsigned ones, const __half*) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%4}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(pair), "r"(ones));
}
__device__ __forceinline__ void multiply_add(float (&sums)[4], unsigned pair, unsigned ones, const __nv_bfloat16*) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%4}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(pair), "r"(ones));
}
__device__ __forceinline__ void multiply_add(float (&sums)[4], unsigned a, unsigned b, unsigned ones, const __half*) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %6, %5, %6}, {%4, %5}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a), "r"(b), "r"(ones));
}
__device__ __forceinline__ void multiply_add(float (&sums)[4], unsigned a, unsigned b, unsigned ones,
                                             const __nv_bfloat16*) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %6, %5, %6}, {%4, %5}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a), "r"(b), "r"(ones));
}

// Shared memory by its own addresses of 32 bits, in bytes.
__device__ __forceinline__ unsigned address_of(const uint4* shared) {
    return (unsigned)__cvta_generic_to_shared(shared);
}
__device__ __forceinline__ uint4 load_shared(unsigned at) {
    uint4 value;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(at));
    return value;
}
__device__ __forceinline__ void copy_async(unsigned to, const uint4* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Into the L2, the 32 bytes around it.
__device__ __forceinline__ void prefetch(const uint4* from) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}
template <int PENDING> __device__ __forceinline__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// The same for what is read or written for the last time: it leaves the L2 before anything else.
__device__ __forceinline__ unsigned long long first_to_leave() {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
__device__ __forceinline__ void copy_async(unsigned to, const uint4* from, unsigned long long policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(policy)
                 : "memory");
}
__device__ __forceinline__ uint4 load(const uint4* from, unsigned long long policy) {
    uint4 value;
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(from), "l"(policy));
    return value;
}
__device__ __forceinline__ void store(uint4* to, uint4 value, unsigned long long policy) {
    asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to), "r"(value.x), "r"(value.y),
                 "r"(value.z), "r"(value.w), "l"(policy)
                 : "memory");
}

// Clusters: all blocks have begun once all have arrived, and then send each other numbers. What they have received is
// there once `bytes` of it are.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void expect(unsigned long long* mailbox, int bytes) {
    const unsigned here = (unsigned)__cvta_generic_to_shared(mailbox);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(here) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(here), "r"(bytes) : "memory");
}
__device__ __forceinline__ void send(float2* mine, unsigned long long* mailbox, int rank, float2 value) {
    unsigned there, box;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there)
                 : "r"((unsigned)__cvta_generic_to_shared(mine)), "r"(rank));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(box)
                 : "r"((unsigned)__cvta_generic_to_shared(mailbox)), "r"(rank));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(there),
                 "f"(value.x), "f"(value.y), "r"(box)
                 : "memory");
}
__device__ __forceinline__ void receive(unsigned long long* mailbox) {
    const unsigned here = (unsigned)__cvta_generic_to_shared(mailbox);
    unsigned complete = 0;
    while (!complete)
        asm volatile("{\n\t.reg .pred done;\n\t"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], 0;\n\t"
                     "selp.u32 %0, 1, 0, done;\n\t}"
                     : "=r"(complete)
                     : "r"(here)
                     : "memory");
}

// Barriers of a block beside that of __syncthreads: who arrives goes on, who meets waits for all.
__device__ __forceinline__ void arrive(int barrier, int threads) {
    asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void meet(int barrier, int threads) {
    asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

struct Words {
    unsigned long long mean, squares;
};
__device__ __forceinline__ void put(Words* at, Words words) {
    asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(words.mean), "l"(words.squares)
                 : "memory");
}
__device__ __forceinline__ Words get(const Words* at) {
    Words words;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(words.mean), "=l"(words.squares)
                 : "l"(at)
                 : "memory");
    return words;
}

// Values in memory and in registers.

__device__ __forceinline__ void widen(uint4 packed, float (&wide)[4], const float*) {
    wide[0] = __uint_as_float(packed.x);
    wide[1] = __uint_as_float(packed.y);
    wide[2] = __uint_as_float(packed.z);
    wide[3] = __uint_as_float(packed.w);
}

__device__ __forceinline__ void widen(uint4 packed, float (&wide)[8], const __nv_bfloat16*) {
    const unsigned pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // a bfloat16 is the upper half of a float
        wide[2 * i] = __uint_as_float(pairs[i] << 16);
        wide[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
    }
}

__device__ __forceinline__ void widen(uint4 packed, float (&wide)[8], const __half*) {
    const unsigned pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&pairs[i]));
        wide[2 * i] = pair.x;
        wide[2 * i + 1] = pair.y;
    }
}

__device__ __forceinline__ uint4 narrow(const float (&wide)[4], const float*) {
    return make_uint4(__float_as_uint(wide[0]), __float_as_uint(wide[1]), __float_as_uint(wide[2]),
                      __float_as_uint(wide[3]));
}

__device__ __forceinline__ uint4 narrow(const float (&wide)[8], const __nv_bfloat16*) {
    unsigned pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(wide[2 * i], wide[2 * i + 1]);
        pairs[i] = *reinterpret_cast<const unsigned*>(&pair);
    }
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

__device__ __forceinline__ uint4 narrow(const float (&wide)[8], const __half*) {
    unsigned pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const __half2 pair = __floats2half2_rn(wide[2 * i], wide[2 * i + 1]);
        pairs[i] = *reinterpret_cast<const unsigned*>(&pair);
    }
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}
