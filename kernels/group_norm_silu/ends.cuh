// The values of a contiguous unit outside of its whole vectors.
#pragma once

#include "output.cuh"

// Where vectors are MIXED, a unit may begin or end inside one. Whole vectors are counted so that every unit has as
// many, and fewer than two vectors' worth of values are left at its two ends. A warp of the team's first block takes
// them, a lane each; other blocks take none. Neighbours never touch each other's values.
template <class T, class L, bool MIXED = L::MIXED != 0> struct Ends {
    static constexpr bool present = false;
    static constexpr int channel = 0;
    Ends() = default;
    __device__ __forceinline__ Ends(const Geometry&, const uint4*, int, int) {}
    __device__ __forceinline__ void store(uint4*, float, float2) const {}
};

template <class T, class L> struct Ends<T, L, true> {
    static_assert(L::MIXED <= 16, "a lane for each value");
    long long at;  // in the tensor
    float value;
    int channel;  // of the group
    bool present;

    Ends() = default;
    __device__ __forceinline__ Ends(const Geometry& g, const uint4* x, int unit, int rank) {
        const int lane = threadIdx.x % 32, place = lane < L::before(g, unit) ? lane : g.vectors * L::MIXED + lane;
        present = rank == 0 && lane < L::at_ends(g);
        at = (long long)unit * L::values(g) + place;
        channel = place / g.spatial;
        value = present ? (float)__ldg(reinterpret_cast<const T*>(x) + at) : 0.0f;
    }
    // For the whole warp.
    __device__ __forceinline__ Entry entry() const {
        const float pivot = __shfl_sync(~0u, value, 0), apart = present ? value - pivot : 0.0f;
        Entry all = {(float)__popc(__ballot_sync(~0u, present)), pivot, apart, apart * apart};
#pragma unroll
        for (int bit = 16; bit; bit /= 2) {
            all.sum += __shfl_xor_sync(~0u, all.sum, bit);
            all.squares += __shfl_xor_sync(~0u, all.squares, bit);
        }
        return all;
    }
    __device__ __forceinline__ void store(uint4* y, float mean, float2 of_channel) const {
        const float u = at_most(scaled<T>(value, mean, of_channel.x, of_channel.y), 60.0f);
        reinterpret_cast<T*>(y)[at] = (T)(u * reciprocal(fmaf(power_of_two(u), SCALE, SCALE)));
    }
};

// Leaves them where the block collects its entries, behind those of the vectors.
template <class L, int THREADS, class E> __device__ __forceinline__ void leave_ends(const E& ends, Entry* entries) {
    if constexpr (L::MIXED != 0) {
        const Entry entry = ends.entry();
        if (threadIdx.x % 32 == 0) entries[ENTRIES<L, THREADS> - 1] = entry;
        __syncwarp();
    }
}
