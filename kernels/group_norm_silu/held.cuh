// Units that the chip holds, all at once.
#pragma once

#include "output.cuh"
#include "teams.cuh"

// Mean and 1 / standard deviation of a group, from the moments of the blocks of a cluster.
template <class T, class L, int THREADS, int CLUSTER>
__device__ __forceinline__ float2 of_cluster(const Geometry& g, const float2* of_blocks, int group, float eps) {
    const float pivot = of_blocks[group].x;
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int rank = 0; rank < CLUSTER; ++rank) {
        const float2 one = of_blocks[rank * L::GROUPS + group];
        const float part = values_of<T, L, THREADS>(g, CLUSTER, rank), apart = part > 0.0f ? one.x - pivot : 0.0f;
        sum = fmaf(part, apart, sum);
        squares += fmaf(part * apart, apart, one.y);
    }
    const float per = reciprocal(values_of_group<T, L>(g));
    return {pivot + sum * per, rsqrtf(fmaxf(squares - sum * sum * per, 0.0f) * per + eps)};
}

// The team holds its unit: REGISTERS vectors of a thread in registers, `slots` more in shared memory where this is
// SHARED. It is a cluster of CLUSTER blocks, which send each other their moments, or where this is 0 `team_size` of
// them, which exchange moments through memory.
// Small units are done in 2 us from a cold start, code included: loops are left as loops where nothing is gained.
enum { MOST_CHANNELS = 256 };

template <class T, class L, int THREADS, int CLUSTER, int REGISTERS, bool SHARED>
__global__ void __cluster_dims__(CLUSTER ? CLUSTER : 1, 1, 1)
__launch_bounds__(THREADS, THREADS < 512 ? 512 / THREADS : 1)
held(const uint4* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, uint4* __restrict__ y,
     Workspace* __restrict__ workspace, int units, int team_size, int slots, int vectors, int share, int slices,
     int spatial, int channels, int row, long long batch, unsigned per_spatial, float eps) {
    constexpr int WARPS = THREADS / 32, SLOT = 16 * THREADS;
    __shared__ Entry entries[ENTRIES<L, THREADS>];
    __shared__ float2 of_channels[L::LAST ? 1 : MOST_CHANNELS], of_groups[(CLUSTER ? CLUSTER : 1) * L::GROUPS];
    __shared__ unsigned long long mailbox;
    __shared__ Team<T, L, THREADS> team;
    extern __shared__ __align__(128) uint4 kept[];
    const int size = CLUSTER ? CLUSTER : team_size, unit = blockIdx.x / size, rank = blockIdx.x % size;
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const Geometry g = {vectors, share, slices, spatial, channels, row, batch};
    if (CLUSTER == 0 && unit >= units) {
        if (thread == 0) number_of_call(workspace);
        return;
    }
    const Place<L, THREADS> place(g, size, rank, thread);
    const long long start = L::start(g, unit) + place.at;

    uint4 packed[REGISTERS];
#pragma unroll
    for (int j = 0; j < REGISTERS; ++j)
        packed[j] = j < place.count ? __ldg(x + start + j * place.step) : make_uint4(0, 0, 0, 0);
    Ends<T, L> ends;
    if (L::MIXED && warp == 0) ends = Ends<T, L>(g, x, unit, rank);
    const unsigned own_slots = address_of(kept + thread);
    const int in_shared = SHARED ? min(slots, place.count - REGISTERS) : 0, half = slots / 2;
    const uint4* from = x + start + REGISTERS * place.step;
    if (SHARED) {
#pragma unroll 1
        for (int j = 0; j < slots; ++j, from += place.step) {
            if (j == half) commit();
            if (j < in_shared) copy_async(own_slots + j * SLOT, from);
        }
        commit();
    }
    if (CLUSTER > 1) {  // waited for below: nobody may send to a block that has not begun
        if (thread == 0) expect(&mailbox, CLUSTER * L::GROUPS * sizeof(float2));
        cluster_arrive();
    }
    if (CLUSTER == 0 && thread == 0)  // not earlier: a warp would wait for it before it loads anything
        team.begin(g, x, workspace, eps, size, rank);
    uint4 gain = {}, offset = {};
    if (L::LAST) {
        const int first = unit % slices * L::SLICE + thread % L::SLICE;
        gain = __ldg(reinterpret_cast<const uint4*>(weight) + first);
        offset = __ldg(reinterpret_cast<const uint4*>(bias) + first);
    } else {
        load_channels(g, unit, weight, bias, of_channels, thread, THREADS);
    }

    Statistics<T, L> statistics;
    statistics.begin(packed[0]);
#pragma unroll
    for (int j = 0; j < REGISTERS; ++j) statistics.add(packed[j], j < place.count);
    if (SHARED) {
        wait<1>();
#pragma unroll 2
        for (int j = 0; j < half; ++j) statistics.add(load_shared(own_slots + j * SLOT), j < in_shared);
        wait<0>();
#pragma unroll 2
        for (int j = half; j < slots; ++j) statistics.add(load_shared(own_slots + j * SLOT), j < in_shared);
    }
    leave(statistics, place.of_entry(), thread, entries);
    if (L::MIXED && warp == 0) leave_ends<L, THREADS>(ends, entries);
    __syncthreads();

    float2 of_own[L::SUB];
    if (CLUSTER) {
        if (CLUSTER > 1) cluster_wait();
#pragma unroll 1
        for (int group = warp; group < L::GROUPS; group += WARPS) {
            const Moments all = of_block<L, THREADS>(entries, group, values_of<T, L, THREADS>(g, CLUSTER, rank));
            float2* const of_rank = of_groups + rank * L::GROUPS + group;
            if (CLUSTER == 1) {
                if (lane == 0) *of_rank = {all.mean, all.squares};
            } else if (lane < CLUSTER) {
                send(of_rank, &mailbox, lane, {all.mean, all.squares});
            }
        }
        if (CLUSTER > 1)
            receive(&mailbox);
        else
            __syncthreads();
#pragma unroll
        for (int s = 0; s < L::SUB; ++s)
            of_own[s] = of_cluster<T, L, THREADS, CLUSTER>(g, of_groups, L::group(thread) + s, eps);
    } else {
#pragma unroll 1
        for (int group = warp; group < L::GROUPS; group += WARPS) {
            const float2 of_group = exchanged(team, unit, group, entries, warp == 0);
            if (lane == 0) of_groups[group] = of_group;
        }
        __syncthreads();
#pragma unroll
        for (int s = 0; s < L::SUB; ++s) of_own[s] = of_groups[L::group(thread) + s];
    }

    Channels<T, L> own;
    if (L::LAST) own.set(gain, offset, of_own);
    const auto output = [&](int j, uint4 value) {
        if (L::LAST) return own(value);
        if constexpr (L::MIXED != 0) {
            const int value_at = L::before(g, unit) + ((int)place.at + j * THREADS) * L::MIXED;
            const int c = __umulhi(value_at, per_spatial) >> (31 - __clz(spatial - 1));
            const int left = (c + 1) * spatial - value_at;
            const auto of_channel = [&](int c) { return affine<T>(of_channels[c].x, of_channels[c].y, of_own[0]); };
            const float2 next = left < L::MIXED ? of_channel(min(c + 1, channels - 1)) : float2{};
            return activated<T>(value, of_own[0].x, of_channel(c), next, left);
        }
        const float2 raw = of_channels[__umulhi((unsigned)place.at + j * THREADS, per_spatial)];
        return activated<T>(value, of_own[0].x, affine<T>(raw.x, raw.y, of_own[0]));
    };
    uint4* to = y + start;
#pragma unroll
    for (int j = 0; j < REGISTERS; ++j)
        if (j < place.count) to[j * place.step] = output(j, packed[j]);
    to += REGISTERS * place.step;
#pragma unroll 2
    for (int j = 0; j < in_shared; ++j, to += place.step)
        *to = output(REGISTERS + j, load_shared(own_slots + j * SLOT));
    if (L::MIXED && warp == 0 && ends.present) {
        const float2 raw = of_channels[ends.channel];
        ends.store(y, of_own[0].x, affine<T>(raw.x, raw.y, of_own[0]));
    }
}
