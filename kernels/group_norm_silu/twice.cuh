// Units that are read twice.
#pragma once

#include "output.cuh"
#include "teams.cuh"

// Units that do not fit into the ring: forwards for the statistics, backwards for the output. By then the last
// REGISTERS vectors of a thread are in registers, `slots` steps before them in shared memory and some before these in
// the L2, if what will not be read again leaves it first. Without REGISTERS loads of the first pass leave no earlier
// than others. While the blocks exchange moments, the first COMING vectors of a thread of the next unit come into the
// L2: 1 % less where two units follow each other.
enum { COMING = 12 };

template <class T, class L, int THREADS, int BATCH, int AHEAD, int REGISTERS>
__global__ void __launch_bounds__(THREADS, 1)
twice(const uint4* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, uint4* __restrict__ y,
      Workspace* __restrict__ workspace, int units, int team_size, int slots, int vectors, int share, int slices,
      int spatial, int channels, int row, long long batch, float eps) {
    constexpr unsigned APART = 16 * THREADS, SLOT = BATCH * APART;
    __shared__ Entry entries[ENTRIES<L, THREADS>];
    __shared__ float2 of_groups[L::GROUPS];
    __shared__ uint4 channels_of[2][L::LAST ? 2 * L::SLICE : 1];  // weights, then biases, of units in turns
    __shared__ Team<T, L, THREADS> team;
    extern __shared__ __align__(128) uint4 kept[];
    float2* const table = reinterpret_cast<float2*>(kept + slots * BATCH * THREADS);
    const int thread = threadIdx.x, warp = thread / 32;
    const int teams = gridDim.x / team_size, rank = blockIdx.x % team_size;
    const Geometry g = {vectors, share, slices, spatial, channels, row, batch};
    if (thread == 0) team.begin(g, x, workspace, eps, team_size, rank);
    if (blockIdx.x / team_size >= teams) return;
    const Place<L, THREADS> place(g, team_size, rank, thread);
    const int count = place.count, of_entry = place.of_entry();
    const int steps = (share - REGISTERS * THREADS + BATCH * THREADS - 1) / (BATCH * THREADS), before = steps * BATCH;
    const long long step = BATCH * place.step;
    const unsigned first_slot = address_of(kept + thread), end = first_slot + slots * SLOT;
    const unsigned long long leaves = first_to_leave();

    for (int unit = blockIdx.x / team_size, odd = 0; unit < units; unit += teams, odd ^= 1) {
        const uint4* from = x + L::start(g, unit) + place.at;
        if (L::LAST && thread < L::SLICE) {  // with the first step: after the exchange everybody would wait for them
            const int column = unit % slices * L::SLICE + thread;
            copy_async(address_of(&channels_of[odd][thread]), reinterpret_cast<const uint4*>(weight) + column);
            copy_async(address_of(&channels_of[odd][L::SLICE + thread]), reinterpret_cast<const uint4*>(bias) + column);
        }
        Ends<T, L> ends;
        if (L::MIXED && warp == 0) ends = Ends<T, L>(g, x, unit, rank);
        Statistics<T, L> statistics;
        unsigned here = first_slot, add_here = first_slot;
        const auto next = [&](unsigned slot) { return slot + SLOT == end ? first_slot : slot + SLOT; };
        const auto add_step = [&](int t, unsigned at) {  // adds what step t - AHEAD loaded
            uint4 packed[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; ++b) packed[b] = load_shared(at + b * APART);
            if (t == AHEAD) statistics.begin(packed[0]);
            const int added = (t - AHEAD) * BATCH;
            if (added + BATCH <= place.whole) {
#pragma unroll
                for (int b = 0; b < BATCH; ++b) statistics.add(packed[b], true);
            } else {
#pragma unroll
                for (int b = 0; b < BATCH; ++b) statistics.add(packed[b], added + b < count);
            }
        };
        for (int t = 0; t < (REGISTERS ? steps : steps + AHEAD); ++t) {
            const bool is_last = REGISTERS && t >= steps - slots;
#pragma unroll
            for (int b = 0; b < BATCH; ++b)
                if (t * BATCH + b < count) {
                    if (is_last)
                        copy_async(here + b * APART, from + b * place.step, leaves);
                    else
                        copy_async(here + b * APART, from + b * place.step);
                }
            commit();
            from += step;
            here = next(here);
            if (t < AHEAD) continue;
            wait<AHEAD>();
            add_step(t, add_here);
            add_here = next(add_here);
        }
        uint4 last[REGISTERS ? REGISTERS : 1];
        if (REGISTERS) {
#pragma unroll
            for (int j = 0; j < REGISTERS; ++j)
                last[j] = before + j < count ? load(from + j * place.step, leaves) : make_uint4(0, 0, 0, 0);
            wait<0>();
#pragma unroll 1
            for (int t = max(0, steps - AHEAD); t < steps; ++t, add_here = next(add_here))
                add_step(t + AHEAD, add_here);
#pragma unroll
            for (int j = 0; j < REGISTERS; ++j) statistics.add(last[j], before + j < count);
        }
        leave(statistics, of_entry, thread, entries);
        if (L::MIXED && warp == 0) leave_ends<L, THREADS>(ends, entries);
        __syncthreads();
        if (unit + teams < units && thread % 2 == 0) {
            const uint4* const coming = x + L::start(g, unit + teams) + place.at;
#pragma unroll 1
            for (int j = 0; j < min((int)COMING, count); ++j) prefetch(coming + j * place.step);
        }
        if (!L::LAST) load_channels(g, unit, weight, bias, table, thread, THREADS);
#pragma unroll 1
        for (int group = warp; group < L::GROUPS; group += THREADS / 32) {
            const float2 of_group = exchanged(team, unit, group, entries, warp == 0);
            if (thread % 32 == 0) of_groups[group] = of_group;
        }
        __syncthreads();
        if (!L::LAST) {
#pragma unroll 1
            for (int c = thread; c < channels; c += THREADS) table[c] = affine<T>(table[c].x, table[c].y, of_groups[0]);
            __syncthreads();
        }

        Writer<T, L, THREADS> writer;
        if constexpr (L::LAST) {
            const uint4* const own = channels_of[odd] + thread % L::SLICE;
            writer.begin(own[0], own[L::SLICE], of_groups, thread);
        } else {
            writer.begin(g, unit, of_groups[0].x, table, (int)place.at + (before + REGISTERS - 1) * THREADS);
            if (L::MIXED && warp == 0 && ends.present) ends.store(y, of_groups[0].x, table[ends.channel]);
        }
        long long at = L::start(g, unit) + place.at + (REGISTERS ? steps : steps - 1) * step;  // of what comes first
#pragma unroll
        for (int j = REGISTERS - 1; j >= 0; --j) {
            if (before + j < count) store(y + at + j * place.step, writer(g, last[j]), leaves);
            writer.backwards(g);
        }
        if (REGISTERS) at -= step;
        here = first_slot + (steps - 1) % slots * SLOT;
        for (int j = steps - 1; j >= 0; --j) {
            wait<AHEAD>();  // what is due was loaded `slots` steps ago, and slots > AHEAD
            uint4 packed[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; ++b) packed[b] = load_shared(here + b * APART);
#pragma unroll
            for (int b = BATCH - 1; b >= 0; --b) {
                if (j * BATCH + b < count) store(y + at + b * place.step, writer(g, packed[b]), leaves);
                writer.backwards(g);
            }
            if (j >= slots) {
#pragma unroll
                for (int b = 0; b < BATCH; ++b)
                    if ((j - slots) * BATCH + b < count)
                        copy_async(here + b * APART, x + at - slots * step + b * place.step, leaves);
            }
            commit();
            at -= step;
            here = here == first_slot ? end - SLOT : here - SLOT;
        }
    }
}
