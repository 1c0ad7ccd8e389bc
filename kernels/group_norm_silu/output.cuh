// From values, mean and deviation to outputs.
#pragma once

#include "statistics.cuh"

// z = (x - mean) * gain + offset, then SiLU, z / (1 + e^-z), rounded once; gain is the channel's weight over the
// standard deviation. Values of 16 bits have the mean folded into the offset, which costs them nothing; of 32 bits it
// would cost digits. Gain and offset come times SCALE, which is -log2(e): of u = SCALE * z, the power 2^u is e^-z, and
// the output is u / (SCALE + SCALE * 2^u).
template <class T> constexpr bool FOLDED = sizeof(T) == 2;
constexpr float SCALE = -1.4426950408889634f;

template <class T> __device__ __forceinline__ float2 affine(float weight, float bias, float2 of_group) {
    const float gain = weight * of_group.y * SCALE, offset = bias * SCALE;
    return {gain, FOLDED<T> ? fmaf(-of_group.x, gain, offset) : offset};
}
template <class T> __device__ __forceinline__ float scaled(float x, float mean, float gain, float offset) {
    return fmaf(FOLDED<T> ? x : x - mean, gain, offset);
}

// From u to outputs. 1 / a is b / (a * b), so that one reciprocal does for two; writing waits for the special function
// unit, and this takes three of its instructions for two outputs instead of four. For values of 16 bits one reciprocal
// does for four: five instead of eight. Products are in range because u is taken as 60, or 30, at most: beyond,
// outputs stay at -4e-17, or -2e-8.
template <class T> __device__ __forceinline__ void activate(float (&u)[WIDTH<T>]) {
    constexpr bool BY_FOUR = sizeof(T) == 2;
#pragma unroll
    for (int i = 0; i < WIDTH<T>; i += 4) {
        float below[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            u[i + k] = at_most(u[i + k], BY_FOUR ? 30.0f : 60.0f);
            below[k] = fmaf(power_of_two(u[i + k]), SCALE, SCALE);
        }
        const float low = below[0] * below[1], high = below[2] * below[3];
        const float all = BY_FOUR ? reciprocal(low * high) : 0.0f;
        const float of_low = BY_FOUR ? all * high : reciprocal(low), of_high = BY_FOUR ? all * low : reciprocal(high);
        u[i] *= below[1] * of_low;
        u[i + 1] *= below[0] * of_low;
        u[i + 2] *= below[3] * of_high;
        u[i + 3] *= below[2] * of_high;
    }
}

// Where all values of a vector are of one channel.
template <class T> __device__ __forceinline__ uint4 activated(uint4 packed, float mean, float2 channel) {
    constexpr const T* kind = nullptr;
    float wide[WIDTH<T>];
    widen(packed, wide, kind);
#pragma unroll
    for (int i = 0; i < WIDTH<T>; ++i) wide[i] = scaled<T>(wide[i], mean, channel.x, channel.y);
    activate<T>(wide);
    return narrow(wide, kind);
}

// Where values from `left` on are of the next channel.
template <class T>
__device__ __forceinline__ uint4 activated(uint4 packed, float mean, float2 channel, float2 next, int left) {
    constexpr const T* kind = nullptr;
    float wide[WIDTH<T>];
    widen(packed, wide, kind);
    if (left >= WIDTH<T>) {  // nearly everywhere
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i) wide[i] = scaled<T>(wide[i], mean, channel.x, channel.y);
    } else {
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i)
            wide[i] = scaled<T>(wide[i], mean, i < left ? channel.x : next.x, i < left ? channel.y : next.y);
    }
    activate<T>(wide);
    return narrow(wide, kind);
}

// Channels-last: a thread has the same channels everywhere.
template <class T, class L> struct Channels {
    float mean[L::SUB];
    float2 channel[WIDTH<T>];

    __device__ __forceinline__ void set(uint4 weight, uint4 bias, const float2 (&of_groups)[L::SUB]) {
        constexpr const T* kind = nullptr;
        float weights[WIDTH<T>], biases[WIDTH<T>];
        widen(weight, weights, kind);
        widen(bias, biases, kind);
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i)
            channel[i] = affine<T>(weights[i], biases[i], of_groups[i * L::SUB / WIDTH<T>]);
#pragma unroll
        for (int s = 0; s < L::SUB; ++s) mean[s] = of_groups[s].x;
    }
    __device__ __forceinline__ uint4 operator()(uint4 packed) const {
        constexpr const T* kind = nullptr;
        float wide[WIDTH<T>];
        widen(packed, wide, kind);
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i)
            wide[i] = scaled<T>(wide[i], mean[i * L::SUB / WIDTH<T>], channel[i].x, channel[i].y);
        activate<T>(wide);
        return narrow(wide, kind);
    }
};

// Turns the vectors of a unit into outputs, in the order of the thread's steps. Contiguous, `table` has gain and offset
// of the group's channels, and the thread knows the channel at hand and how many vectors into it. Where these are
// MIXED, it knows the next channel too, and counts values.
template <class T, class L, int THREADS> struct Writer {
    static constexpr int STEP = THREADS * (L::MIXED ? L::MIXED : 1);
    Channels<T, L> own;
    const float2* table;
    float2 current, next;
    float mean;
    int channel, within;

    // Channels-last, with weights and biases of the thread's channels.
    __device__ __forceinline__ void begin(uint4 weight, uint4 bias, const float2* of_groups, int thread) {
        float2 of_own[L::SUB];
#pragma unroll
        for (int s = 0; s < L::SUB; ++s) of_own[s] = of_groups[L::group(thread) + s];
        own.set(weight, bias, of_own);
    }
    // Contiguous, at a vector of the unit.
    __device__ __forceinline__ void begin(const Geometry& g, int unit, float of_unit, const float2* of_channels,
                                          int vector) {
        table = of_channels;
        mean = of_unit;
        if constexpr (L::MIXED != 0) vector = L::before(g, unit) + vector * L::MIXED;
        channel = vector / g.spatial;
        within = vector - channel * g.spatial;
        look_up<false>(g);
    }
    __device__ __forceinline__ uint4 operator()(const Geometry& g, uint4 packed) const {
        if constexpr (L::MIXED != 0) return activated<T>(packed, mean, current, next, g.spatial - within);
        return L::LAST ? own(packed) : activated<T>(packed, mean, current);
    }
    __device__ __forceinline__ void forwards(const Geometry& g) {
        if (L::LAST) return;
        within += STEP;
        if (within < g.spatial) return;
        do within -= g.spatial, ++channel;
        while (within >= g.spatial);
        look_up<false>(g);
    }
    __device__ __forceinline__ void backwards(const Geometry& g) {
        if (L::LAST) return;
        within -= STEP;
        if (within >= 0) return;
        do within += g.spatial, --channel;
        while (within < 0);
        look_up<true>(g);
    }
    // Beyond the unit's ends, and BEFORE its beginning, what is not used.
    template <bool BEFORE> __device__ __forceinline__ void look_up(const Geometry& g) {
        const auto nearest = [&](int c) { return BEFORE ? max(0, min(c, g.channels - 1)) : min(c, g.channels - 1); };
        current = table[nearest(channel)];
        if constexpr (L::MIXED != 0) next = table[nearest(channel + 1)];
    }
};

// Weights and biases of the channels of a contiguous unit, by the thread `thread` of `threads`.
template <class T>
__device__ __forceinline__ void load_channels(const Geometry& g, int unit, const T* weight, const T* bias, float2* to,
                                              int thread, int threads) {
    const int first = unit % g.slices * g.channels;
#pragma unroll 1
    for (int c = thread; c < g.channels; c += threads)
        to[c] = {(float)__ldg(weight + first + c), (float)__ldg(bias + first + c)};
}
