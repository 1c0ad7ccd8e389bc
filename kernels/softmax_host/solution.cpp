// Softmax over the rows of a matrix, fp32, one thread.
//
// A first version: four plain passes over a row (largest value, exponentials, their sum, scale), with a polynomial for exp
// that the compiler can turn into vector instructions.
//
// What to try from here:
//   - The maximum and the sum are chains: each step waits for the one before, and the compiler may not reorder
//     floating-point sums by itself. Sixteen partial results in an array, joined at the end, break the chain (and
//     then the sum is accurate enough in float).
//   - A shorter polynomial: task.toml asks for a relative error of 1e-3, degree 6 gives about 1e-7.
//   - A row of 32000 floats does not fit in the first-level cache, and is read or written six times here.

// Without it, gcc will not turn the comparison in exp_of into a vector instruction.
#pragma GCC optimize("O3", "no-trapping-math")

#include <stdint.h>
#include <string.h>

// exp(x) for x <= 0: 2^(x/ln2) = 2^whole * 2^part, the whole number put straight into the exponent's bits.
static inline float exp_of(float x) {
    float t = x * 1.44269504f;
    t = t < -126.0f ? -126.0f : t;
    int32_t whole = (int32_t)(t - 0.5f);
    float part = t - (float)whole;  // from -0.5 to 0.5
    float p = 1.5403530e-4f;
    p = p * part + 1.3333558e-3f;
    p = p * part + 9.6181291e-3f;
    p = p * part + 5.5504109e-2f;
    p = p * part + 2.4022651e-1f;
    p = p * part + 6.9314718e-1f;
    p = p * part + 1.0f;
    int32_t bits = (whole + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

extern "C" void softmax(const float *x, float *out, int64_t rows, int64_t cols) {
    for (int64_t row = 0; row < rows; ++row) {
        const float *from = x + row * cols;
        float *to = out + row * cols;

        float largest = from[0];
        for (int64_t i = 1; i < cols; ++i) largest = from[i] > largest ? from[i] : largest;

        for (int64_t i = 0; i < cols; ++i) to[i] = exp_of(from[i] - largest);

        double sum = 0.0;
        for (int64_t i = 0; i < cols; ++i) sum += to[i];

        float scale = (float)(1.0 / sum);
        for (int64_t i = 0; i < cols; ++i) to[i] *= scale;
    }
}
