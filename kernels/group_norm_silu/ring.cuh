// Units that pass through shared memory.
#pragma once

#include "output.cuh"
#include "teams.cuh"

// Contiguous units one after the other through `slots` steps of shared memory, a step being BATCH vectors of every
// worker. Step t stores what step t - slots loaded, loads into the slot that this frees, and adds what step t - AHEAD
// loaded to the statistics of its unit. The first warp turns what the workers leave into mean and deviation, while they
// go on: a unit takes at most slots - AHEAD steps, and what is left of them hides the exchange. It takes
// (slots - AHEAD) / TURNS at least, so that no more than TURNS units are between their statistics and their output:
// what is exchanged lies in as many places, in turns.
enum { TURNS = 3, ADDED = 1, KNOWN = ADDED + TURNS };  // barriers, one for every turn

__device__ __forceinline__ int after(int turn) { return turn + 1 == TURNS ? 0 : turn + 1; }

template <class T, class L, int WORKERS, int BATCH, int AHEAD>
__global__ void __launch_bounds__(WORKERS + 32, 1)
ring(const uint4* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, uint4* __restrict__ y,
     Workspace* __restrict__ workspace, int units, int team_size, int slots, int vectors, int share, int slices,
     int spatial, int channels, int row, long long batch, float eps) {
    constexpr int ALL = WORKERS + 32;
    constexpr unsigned APART = 16 * WORKERS, SLOT = BATCH * APART;
    __shared__ Entry entries[TURNS][ENTRIES<L, WORKERS>];
    __shared__ float2 of_units[TURNS];
    __shared__ Team<T, L, WORKERS> team;
    extern __shared__ __align__(128) uint4 kept[];
    float2* const tables = reinterpret_cast<float2*>(kept + slots * BATCH * WORKERS);
    const int thread = (int)threadIdx.x - 32;  // of the workers
    const int teams = gridDim.x / team_size, own_team = blockIdx.x / team_size, rank = blockIdx.x % team_size;
    const Geometry g = {vectors, share, slices, spatial, channels, row, batch};
    if (threadIdx.x == 0) team.begin(g, x, workspace, eps, team_size, rank);
    if (own_team >= min(teams, units)) return;

    if (thread < 0) {
        float2* const raw = tables + TURNS * channels;  // nobody else's
        for (int unit = own_team, turn = 0; unit < units; unit += teams, turn = after(turn)) {
            load_channels(g, unit, weight, bias, raw, threadIdx.x, 32);
            const Ends<T, L> ends(g, x, unit, rank);
            leave_ends<L, WORKERS>(ends, entries[turn]);
            meet(ADDED + turn, ALL);
            const float2 of_unit = exchanged(team, unit, 0, entries[turn], true);
            if (threadIdx.x == 0) of_units[turn] = of_unit;
#pragma unroll 1
            for (int c = threadIdx.x; c < channels; c += 32)
                tables[turn * channels + c] = affine<T>(raw[c].x, raw[c].y, of_unit);
            arrive(KNOWN + turn, ALL);
            if constexpr (L::MIXED != 0) {
                if (ends.present) ends.store(y, of_unit.x, affine<T>(raw[ends.channel].x, raw[ends.channel].y, of_unit));
                __syncwarp();  // the next unit's channels come where these are
            }
        }
        return;
    }

    const Place<L, WORKERS> place(g, team_size, rank, thread);
    const int count = place.count, of_entry = place.of_entry();
    const int steps = (share + BATCH * WORKERS - 1) / (BATCH * WORKERS), taken = steps * BATCH;
    const int total = (units - own_team + teams - 1) / teams * steps;
    const unsigned first_slot = address_of(kept + thread), end = first_slot + slots * SLOT;
    unsigned here = first_slot, add_here = first_slot;
    int loaded = 0, added = 0, stored = 0, load_unit = own_team, store_unit = own_team, add_turn = 0, store_turn = 0;
    const uint4* from = x + L::start(g, own_team) + place.at;
    uint4* to = y;
    Statistics<T, L> statistics;
    Writer<T, L, WORKERS> writer;
    for (int t = 0; t < total + slots; ++t) {
        if (t >= slots) {
            if (stored == 0) {
                meet(KNOWN + store_turn, ALL);
                writer.begin(g, store_unit, of_units[store_turn].x, tables + store_turn * channels, (int)place.at);
                to = y + L::start(g, store_unit) + place.at;
            }
            uint4 packed[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; ++b) packed[b] = load_shared(here + b * APART);
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                if (stored + b < count) to[b * WORKERS] = writer(g, packed[b]);
                writer.forwards(g);
            }
            to += BATCH * WORKERS;
            stored += BATCH;
            if (stored == taken) stored = 0, store_unit += teams, store_turn = after(store_turn);
        }
        if (t < total) {
#pragma unroll
            for (int b = 0; b < BATCH; ++b)
                if (loaded + b < count) copy_async(here + b * APART, from + b * WORKERS);
            from += BATCH * WORKERS;
            loaded += BATCH;
            if (loaded == taken) {
                loaded = 0;
                load_unit += teams;
                from = x + L::start(g, load_unit) + place.at;
            }
        }
        commit();  // also where nothing was loaded: groups are counted in steps
        here += SLOT;
        if (here == end) here = first_slot;
        if (t >= AHEAD && t < total + AHEAD) {
            wait<AHEAD>();
            uint4 packed[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; ++b) packed[b] = load_shared(add_here + b * APART);
            if (added == 0) statistics.begin(packed[0]);
            if (added + BATCH <= place.whole) {
#pragma unroll
                for (int b = 0; b < BATCH; ++b) statistics.add(packed[b], true);
            } else {
#pragma unroll
                for (int b = 0; b < BATCH; ++b) statistics.add(packed[b], added + b < count);
            }
            add_here += SLOT;
            if (add_here == end) add_here = first_slot;
            added += BATCH;
            if (added == taken) {
                leave(statistics, of_entry, thread, entries[add_turn]);
                arrive(ADDED + add_turn, ALL);
                added = 0;
                add_turn = after(add_turn);
            }
        }
    }
}
