#include "nn/layers/sequence_policy.h"

#include <cmath>
#include <functional>

#include "core/autograd/autograd.h"

namespace axle::nn {
namespace {

// Returns the results of part(range, first index in the local sequence) for all ranges of `time`
// tokens, concatenated along `dim`.
Tensor by_range(const SequencePolicy& policy, std::int64_t time, int dim,
                const std::function<Tensor(PositionRange, std::int64_t)>& part) {
    std::vector<Tensor> parts;
    std::int64_t first = 0;
    for (const PositionRange range : policy.positions(time)) {
        parts.push_back(part(range, first));
        first += range.count;
    }
    return parts.size() == 1 ? parts.front() : cat(parts, dim);
}

// Returns x [B, heads, T, D] rotated by the cosines and sines [B, 1, T, D].
Tensor rotated(const Tensor& x, const Tensor& rotation) {
    const std::int64_t half = x.size(-1) / 2;
    const DType dtype = is_half(x.dtype()) ? f32 : x.dtype();
    const Tensor cosines = rotation.narrow(-1, 0, half).to(dtype),
                 sines = rotation.narrow(-1, half, half).to(dtype);
    const Tensor a = x.narrow(-1, 0, half).to(dtype), b = x.narrow(-1, half, half).to(dtype);
    return cat({a * cosines - b * sines, b * cosines + a * sines}, -1).to(x.dtype());
}

}  // namespace

SequencePolicy* sequence_policy() { return dynamic_cast<SequencePolicy*>(forward_context().get()); }

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options) {
    SequencePolicy* const policy = sequence_policy();
    return policy != nullptr ? policy->attend(q, k, v, options)
                             : scaled_dot_product_attention(q, k, v, options);
}

Tensor rotary_positions(const Tensor& x, double base, const Tensor& rotation) {
    if (rotation.defined()) return rotated(x, rotation);
    const SequencePolicy* const policy = sequence_policy();
    if (policy == nullptr) return rotary_embedding(x, base);
    return by_range(*policy, x.size(-2), -2, [&](PositionRange range, std::int64_t first) {
        return rotary_embedding(x.narrow(-2, first, range.count), base, range.begin);
    });
}

Tensor rotary_rotation(const Tensor& positions, std::int64_t length, std::int64_t head_size,
                       double base, DType dtype) {
    if (positions.numel() < length / 4) {  // for example a single token; a table would be larger
        std::vector<double> frequencies;
        for (std::int64_t i = 0; i < head_size; i += 2)
            frequencies.push_back(
                std::pow(base, -static_cast<double>(i) / static_cast<double>(head_size)));
        return rotary_rotation(positions, frequencies, dtype);
    }
    const NoGrad no_grad;
    const TensorOptions options{.dtype = dtype, .device = positions.device()};
    const Shape half = {length, head_size / 2};
    // Rotates the vectors (1, 0), which become (cos a, sin a).
    const Tensor table =
        rotary_embedding(cat({ones(half, options), zeros(half, options)}, 1), base);
    return embedding(positions, table).unsqueeze(1);
}

Tensor rotary_rotation(const Tensor& positions, const std::vector<double>& frequencies,
                       DType dtype) {
    const NoGrad no_grad;
    const Tensor per_position = tensor(frequencies, {.dtype = f64}).to(positions.device());
    const Tensor angles = positions.to(f64).unsqueeze(-1) * per_position;
    return cat({cos(angles), sin(angles)}, -1).to(dtype).unsqueeze(1);
}

Tensor token_numbers(std::int64_t time, Device device) {
    const TensorOptions options{.dtype = i64, .device = device};
    const SequencePolicy* const policy = sequence_policy();
    if (policy == nullptr) return arange(time, options).unsqueeze(0);
    return by_range(*policy, time, 0,
                    [&](PositionRange range, std::int64_t) {
                        return arange(range.begin, range.begin + range.count, options);
                    })
        .unsqueeze(0);
}

Tensor position_rows(const Tensor& table, std::int64_t time, const Tensor& positions) {
    if (positions.defined()) return embedding(positions, table);
    const SequencePolicy* const policy = sequence_policy();
    if (policy == nullptr) return table.narrow(0, 0, time);
    return by_range(*policy, time, 0, [&](PositionRange range, std::int64_t) {
        return table.narrow(0, range.begin, range.count);
    });
}

std::int64_t whole_length(std::int64_t time) {
    const SequencePolicy* const policy = sequence_policy();
    return policy == nullptr ? time : time * policy->parts();
}

Tensor sequence_dropout(const Tensor& x, double p, const RandomPart& part) {
    const SequencePolicy* const policy = sequence_policy();
    if (policy == nullptr || p == 0 || x.dim() < 3) {
        const RandomPartGuard guard(part);
        return dropout(x, p);
    }
    if (part.parts > 1 && part.dim != 1)
        throw UsageError(
            str("dropout: a part of a divided sequence must be along dimension 1, not dimension ",
                part.dim));
    Tensor factors;
    {
        const NoGrad no_grad;
        const std::int64_t time = x.size(1) * part.parts;  // the tokens of this process
        Shape whole = x.shape();
        whole[1] = whole_length(time);
        const DType dtype = is_half(x.dtype()) ? f32 : x.dtype();  // dtype of factor 1 / (1 - p)
        const Tensor drawn = dropout(ones(whole, {.dtype = dtype, .device = x.device()}), p);
        factors = by_range(*policy, time, 1, [&](PositionRange range, std::int64_t) {
            return drawn.narrow(1, range.begin, range.count);
        });
        factors = factors.narrow(1, part.part * x.size(1), x.size(1));
    }
    return (x.to(factors.dtype()) * factors).to(x.dtype());
}

}  // namespace axle::nn
