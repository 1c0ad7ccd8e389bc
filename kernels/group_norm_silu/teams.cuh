// How the blocks of a team learn each other's moments.
#pragma once

#include "ends.cuh"

// Moments of blocks that are no cluster go through memory, in words that say themselves to which call they belong: the
// value below, the number of the call above. So they need neither fences nor to be cleared.
__device__ __forceinline__ unsigned long long word(float value, unsigned call) {
    return (unsigned long long)call << 32 | __float_as_uint(value);
}
// 0 where both are of the call.
__device__ __forceinline__ unsigned differ(Words words, unsigned call) {
    return ((unsigned)(words.mean >> 32) ^ call) | ((unsigned)(words.squares >> 32) ^ call);
}

// What a call leaves for the next one on its stream: how many blocks have begun so far. Every launch has as many.
struct Workspace {
    unsigned long long begun, unused;
    Words words[1];
};
__device__ __forceinline__ unsigned number_of_call(Workspace* workspace) {
    return (unsigned)(atomicAdd(&workspace->begun, 1ull) / gridDim.x) + 1;
}

// A team of up to 160 blocks. All of its blocks run at the same time where the GPU is not shared; where it is, a block
// that has waited for PATIENCE looks works out what the others owe it, to the same bits, so that nobody waits forever.
// Everything here is done by a warp.
enum { PATIENCE = 1 << 14 };

template <class T, class L, int THREADS> struct Team {
    static constexpr int LOOKS = 5;
    Geometry g;
    const uint4* x;
    Words* words;
    float eps;
    int size, rank;
    unsigned call;
    Entry spare[ENTRIES<L, THREADS>];  // for what another block owes

    __device__ __forceinline__ void begin(const Geometry& geometry, const uint4* from, Workspace* workspace,
                                          float epsilon, int blocks, int own_rank) {
        g = geometry, x = from, words = workspace->words, eps = epsilon, size = blocks, rank = own_rank;
        call = number_of_call(workspace);
    }
    __device__ __forceinline__ Words* of(int unit, int group, int who) const {
        return words + ((long long)unit * L::GROUPS + group) * size + who;
    }
    __device__ __forceinline__ void publish(int unit, int group, int who, const Entry* entries) const {
        const Moments all = of_block<L, THREADS>(entries, group, values_of<T, L, THREADS>(g, size, who));
        if (threadIdx.x % 32 == 0) put(of(unit, group, who), {word(all.mean, call), word(all.squares, call)});
    }

    // Mean and 1 / standard deviation of a group; false where a block has not published in time. Merged in the same
    // order everywhere. Only words that were missing are looked at again: the memory has others to serve, and streams
    // through a ring take 1 to 2 % less.
    __device__ __forceinline__ bool look(int unit, int group, float2& result) const {
        const int lane = threadIdx.x % 32, mine = size - lane;  // a word in 32, while there are any
        const unsigned number = call;
        const Words* const at = of(unit, group, lane);
        Words found[LOOKS];
#pragma unroll
        for (int i = 0; i < LOOKS; ++i) {
            const unsigned known = 32 * i < mine ? ~number : number;
            found[i] = {word(0.0f, known), word(0.0f, known)};
        }
        bool missing = true;
#pragma unroll 1
        for (int tries = 0; missing && tries < PATIENCE; ++tries) {
#pragma unroll
            for (int i = 0; i < LOOKS; ++i)
                if (differ(found[i], number)) found[i] = get(at + 32 * i);
            unsigned other = 0;
#pragma unroll
            for (int i = 0; i < LOOKS; ++i) other |= differ(found[i], number);
            missing = __any_sync(~0u, other != 0);
        }
        if (missing) return false;
        const Geometry known = g;
        const float pivot = __shfl_sync(~0u, __uint_as_float((unsigned)found[0].mean), 0);
        float sum = 0.0f, squares = 0.0f;
#pragma unroll
        for (int i = 0; i < LOOKS; ++i) {
            const float part = 32 * i < mine ? values_of<T, L, THREADS>(known, size, lane + 32 * i) : 0.0f;
            if (part > 0.0f) {
                const float apart = __uint_as_float((unsigned)found[i].mean) - pivot;
                sum += part * apart;
                squares += __uint_as_float((unsigned)found[i].squares) + part * apart * apart;
            }
        }
#pragma unroll
        for (int bit = 16; bit; bit /= 2) {
            sum += __shfl_xor_sync(~0u, sum, bit);
            squares += __shfl_xor_sync(~0u, squares, bit);
        }
        const float per = reciprocal(values_of_group<T, L>(known));
        result = {pivot + sum * per, rsqrtf(fmaxf(squares - sum * sum * per, 0.0f) * per + eps)};
        return true;
    }
};

template <class T, class L, int THREADS>
__device__ __noinline__ void publish_for_all(Team<T, L, THREADS>& team, int unit) {
    const int steps = (team.g.share + THREADS - 1) / THREADS;
    for (int who = 0; who < team.size; ++who) {
        for (int thread = threadIdx.x % 32; thread < THREADS; thread += 32) {
            const Place<L, THREADS> place(team.g, team.size, who, thread);
            const uint4* from = team.x + L::start(team.g, unit) + place.at;
            Statistics<T, L> statistics;
            for (int j = 0; j < steps; ++j) {
                const uint4 packed = j < place.count ? from[j * place.step] : make_uint4(0, 0, 0, 0);
                if (j == 0) statistics.begin(packed);
                statistics.add(packed, j < place.count);
            }
            leave(statistics, place.of_entry(), thread, team.spare);
        }
        leave_ends<L, THREADS>(Ends<T, L>(team.g, team.x, unit, who), team.spare);
        __syncwarp();
#pragma unroll 1
        for (int group = 0; group < L::GROUPS; ++group) team.publish(unit, group, who, team.spare);
        __syncwarp();
    }
}

// Publishes what the block knows of a group and returns its mean and 1 / standard deviation. One warp of a block helps
// out: who has published one group will soon publish the others. Neither this nor what the team knows is part of the
// loops that call it: they need the registers.
template <class T, class L, int THREADS>
__device__ __noinline__ float2 exchanged(Team<T, L, THREADS>& team, int unit, int group, const Entry* entries,
                                         bool helps) {
    team.publish(unit, group, team.rank, entries);
    float2 of_group;
    while (!team.look(unit, group, of_group))
        if (helps) publish_for_all(team, unit);
    return of_group;
}
