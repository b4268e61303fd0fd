// Selects the attention calls that cuDNN supports, and passes their tensors to it. Operands with a
// supported layout are used without a copy. The forward pass does not support other layouts. In the
// backward pass, operands with another layout, such as a broadcast gradient, are copied to scratch
// memory.
#include "kernels/cuda/attention/cudnn_attention.h"

#include <bit>
#include <limits>
#include <utility>

#include "kernels/cuda/attention/cudnn_attention_graph.h"
#include "kernels/cuda/attention/cudnn_scores.h"
#include "kernels/cuda/visit.cuh"
#include "kernels/error.h"

namespace axle::kernels::cudnn {
namespace {

// The minimum cuDNN version. Before 9.6, the caller had to clear the sum of dq. The backward pass
// has bugs in 9.10.0 and 9.10.1, and up to 9.15.0 if the number of keys is not a multiple of 128.
constexpr std::int64_t kMinVersion = 90600;
bool has_backward(std::int64_t keys) {
    const std::int64_t v = version();
    return v != 91000 && v != 91001 && (v > 91500 || keys % 128 == 0);
}

// The limits below which Axle's own kernels are used: kMinWork multiplications, and kFewestQueries
// queries. With few queries, as in text generation, cuDNN would need a new plan for every length.
constexpr std::int64_t kMinWork = 1 << 20;
constexpr std::int64_t kFewestQueries = 16;

// The maximum number of bytes for the partial sums of the deterministic backward pass, which grow
// with the square of the sequence length.
constexpr std::int64_t kMaxWorkspace = std::int64_t{2} << 30;

// Returns whether cuDNN supports a call with these shapes, dtypes and parameters, and the call is
// large enough. The layouts and addresses of operands are not checked.
bool supports(const ConstView& q, const ConstView& k, const AttentionParams& params) {
    const std::int64_t depth = q.shape[3], queries = q.shape[2];
    return is_half(q.dtype) && depth % 8 == 0 && depth >= 16 && depth <= 256 &&
           params.dropout_p < 1 && (params.dropout_p == 0 || params.grid.keys == 0) &&
           queries >= kFewestQueries && q.numel() * k.shape[2] >= kMinWork &&
           (!params.causal || (params.causal_offset == 0 && queries == k.shape[2])) &&
           version() >= kMinVersion;
}

bool is_aligned(const ConstView& x) { return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0; }
// Returns whether the elements of each row are contiguous and the rows are aligned to 16 bytes.
bool has_supported_layout(const ConstView& x) {
    if (!is_aligned(x) || x.stride[3] != 1) return false;
    for (int d = 0; d < 3; ++d)
        if (x.shape[d] != 1 && (x.stride[d] <= 0 || x.stride[d] % 8 != 0)) return false;
    return true;
}

// Returns x, or dense scratch memory of the given shape if x has no data or an unsupported layout.
View supported_or_scratch(DeviceScratch& scratch, const ConstView& x, const ConstView& shape) {
    if (x.data == nullptr || !has_supported_layout(x))
        return dense_like(shape, scratch.take<char>(shape.numel() * size_of(shape.dtype)),
                          shape.dtype);
    View y;
    y.data = const_cast<void*>(x.data), y.dtype = x.dtype, y.ndim = x.ndim;
    for (int d = 0; d < x.ndim; ++d) y.shape[d] = x.shape[d], y.stride[d] = x.stride[d];
    return y;
}
View supported_or_scratch(DeviceScratch& scratch, const ConstView& x) {
    return supported_or_scratch(scratch, x, x);
}
void copy_if_needed(Cuda& on, const ConstView& from, const View& to) {
    if (from.data != to.data) copy(on, from, to);
}

// Returns the score of a masked key: -infinity, or the lowest finite number for versions of cuDNN
// before 9.10, which turn an infinity into NaN.
float hidden_score() {
    return version() < 91000 ? std::numeric_limits<float>::lowest()
                             : -std::numeric_limits<float>::infinity();
}

enum Kind : std::int64_t { kForward = 1, kBackward = 2 };

// Returns the cache of plans. It is never destroyed because cuDNN can be unloaded before static
// objects are destroyed.
PlanCache& plans() {
    static auto* const cache = new PlanCache;
    return *cache;
}

Key key_of(Kind kind, const AttentionTensors& at) {
    Key key = {kind, at.causal, std::bit_cast<std::int64_t>(at.dropout_p)};
    for (const ConstView& x : {at.q, at.k, at.v, at.out, at.bias}) append(key, x);
    return key;
}
const Plan* forward_plan(Cuda& on, const AttentionTensors& at) {
    return plans().find(on, key_of(kForward, at), {}, [&] { return attention_graph(at); });
}
const Plan* backward_plan(Cuda& on, const AttentionTensors& at,
                          const AttentionGradients& gradients) {
    Key key = key_of(kBackward, at);
    for (const ConstView& x : {gradients.dout, gradients.dq, gradients.dk, gradients.dv})
        append(key, x);
    key.push_back(gradients.deterministic);
    Limits limits;
    if (gradients.deterministic) limits.workspace = kMaxWorkspace;
    return plans().find(on, std::move(key), limits,
                        [&] { return attention_backward_graph(at, gradients); });
}

// Returns whether cuDNN can run the backward pass for gradients with the layouts that the ops in
// core/ use. The forward pass checks this, because only cuDNN can reproduce the weights that it
// dropped.
bool can_run_backward(Cuda& on, const AttentionTensors& at) {
    if (!has_backward(at.k.shape[2])) return false;
    const auto gradient = [&](const ConstView& x) {
        if (x.contiguous()) return x;
        View y = dense_like(x, nullptr, x.dtype);  // shape [B, H, T, D], stored as [B, T, H, D]
        y.stride[1] = x.shape[3], y.stride[2] = x.shape[1] * x.shape[3];
        return ConstView(y);
    };
    return backward_plan(on, at,
                         {at.out, gradient(at.q), gradient(at.k), gradient(at.v),
                          on.deterministic}) != nullptr;
}

// The values that graphs bind. The forward and the backward graph share scale, score of hidden
// keys, bias, and the factor 1 / (1 - p) and random state of dropout. Only backward binds `unit`.
struct Extras {
    const ConstView& mask;
    const AttentionParams& params;
    View bias = {};
    std::int64_t *seed = nullptr, *offset = nullptr;
    float scale, hidden = hidden_score(), kept, unit;

    Extras(DeviceScratch& scratch, const ConstView& q, const ConstView& mask_,
           const AttentionParams& params_)
        : mask(mask_),
          params(params_),
          scale(static_cast<float>(params.scale)),
          kept(static_cast<float>(1 / (1 - params.dropout_p))),
          unit(static_cast<float>(1 - params.dropout_p)) {
        if (mask.data != nullptr) {
            bias = bias_like(mask, q.dtype, nullptr);
            bias.data = scratch.take<char>(bias_bytes(bias));
        }
        if (params.dropout_p > 0)
            seed = scratch.take<std::int64_t>(1), offset = scratch.take<std::int64_t>(1);
    }

    void queue(Cuda& on) const {
        if (mask.data != nullptr) write_bias(on, mask, bias);
        if (params.dropout_p > 0) write_random_state(on, params.random, seed, offset);
    }
    template <class Values>
    void bind(std::vector<Binding>& bindings) const {
        bindings.push_back({Values::scale, &scale});
        if (params.causal) bindings.push_back({Values::hidden, &hidden});
        if (mask.data != nullptr) bindings.push_back({Values::bias, bias.data});
        if (params.dropout_p > 0)
            bindings.insert(
                bindings.end(),
                {{Values::kept, &kept}, {Values::seed, seed}, {Values::offset, offset}});
    }
};

bool run_backward(Cuda& on, const ConstView& dout, const ConstView& q, const ConstView& k,
                  const ConstView& v, const ConstView& mask, const ConstView& out,
                  const ConstView& lse, const AttentionParams& params, const View& dq,
                  const View& dk, const View& dv) {
    if (!supports(q, k, params) || !has_backward(k.shape[2]) || handle_for(on) == nullptr)
        return false;
    DeviceScratch scratch(on);
    const Extras extras(scratch, q, mask, params);
    const View to_q = supported_or_scratch(scratch, q), to_k = supported_or_scratch(scratch, k),
               to_v = supported_or_scratch(scratch, v), to_out = supported_or_scratch(scratch, out),
               to_dout = supported_or_scratch(scratch, dout);
    // Gradients that were not requested are written to scratch memory.
    const View to_dq = supported_or_scratch(scratch, dq, q),
               to_dk = supported_or_scratch(scratch, dk, k),
               to_dv = supported_or_scratch(scratch, dv, v);
    const View row_lse = dense_like(lse, scratch.take<float>(lse.numel()), lse.dtype);
    const AttentionTensors at = {to_q,    to_k,        to_v,          to_out,
                                 row_lse, extras.bias, params.causal, params.dropout_p};
    const AttentionGradients gradients = {to_dout, to_dq, to_dk, to_dv, on.deterministic};
    const Plan* const plan = backward_plan(on, at, gradients);
    if (plan == nullptr) return fall_back_to_own_kernels();

    const bool as_is = mask.data == nullptr && lse.contiguous() && is_aligned(lse);
    if (!as_is) replace_infinity(on, lse, row_lse);
    copy_if_needed(on, q, to_q), copy_if_needed(on, k, to_k), copy_if_needed(on, v, to_v);
    copy_if_needed(on, out, to_out), copy_if_needed(on, dout, to_dout);
    extras.queue(on);
    using Values = BackwardValues;
    std::vector<Binding> bindings = {
        {Values::dout, to_dout.data}, {Values::q, to_q.data},
        {Values::k, to_k.data},       {Values::v, to_v.data},
        {Values::out, to_out.data},   {Values::lse, as_is ? lse.data : row_lse.data},
        {Values::dq, to_dq.data},     {Values::dk, to_dk.data},
        {Values::dv, to_dv.data},     {Values::delta, scratch.take<float>(lse.numel())},
        {Values::unit, &extras.unit}};
    if (!on.deterministic) bindings.push_back({Values::dq_sum, scratch.take<float>(q.numel())});
    extras.bind<Values>(bindings);
    if (!plan->run(on, bindings)) return false;
    for (const auto& [from, to] : {std::pair(to_dq, dq), {to_dk, dk}, {to_dv, dv}})
        if (to.data != nullptr) copy_if_needed(on, from, to);
    return true;
}

}  // namespace

bool attention(Cuda& on, const ConstView& q, const ConstView& k, const ConstView& v,
               const ConstView& mask, const AttentionParams& params, const View& out,
               const View& lse) {
    const bool drops = params.dropout_p > 0;
    if (!supports(q, k, params) || !has_supported_layout(q) || !has_supported_layout(k) ||
        !has_supported_layout(v) || !has_supported_layout(out) || !lse.contiguous() ||
        !is_aligned(lse) || (drops && on.deterministic) || handle_for(on) == nullptr)
        return false;
    DeviceScratch scratch(on);
    const Extras extras(scratch, q, mask, params);
    const AttentionTensors at = {q, k, v, out, lse, extras.bias, params.causal, params.dropout_p};
    const Plan* const plan = forward_plan(on, at);
    if (plan == nullptr || (drops && !can_run_backward(on, at))) return fall_back_to_own_kernels();

    extras.queue(on);
    using Values = ForwardValues;
    std::vector<Binding> bindings = {{Values::q, q.data},
                                     {Values::k, k.data},
                                     {Values::v, v.data},
                                     {Values::out, out.data},
                                     {Values::lse, lse.data}};
    extras.bind<Values>(bindings);
    if (!plan->run(on, bindings)) return false;
    if (mask.data != nullptr) clear_rows_without_keys(on, mask, params.causal, out, lse);
    return true;
}

bool attention_backward(Cuda& on, const ConstView& dout, const ConstView& q, const ConstView& k,
                        const ConstView& v, const ConstView& mask, const ConstView& out,
                        const ConstView& lse, const AttentionParams& params, const View& dq,
                        const View& dk, const View& dv) {
    const bool must = params.generator == DropoutGenerator::library && params.dropout_p > 0;
    if (params.dropout_p > 0 && !must) return false;
    if (run_backward(on, dout, q, k, v, mask, out, lse, params, dq, dk, dv)) return true;
    if (must)
        throw DeviceError(str(
            current_op, ": cuDNN ", version(),
            " cannot compute the gradients of its dropout; call "
            "use_deterministic_algorithms(true) before the forward pass to use Axle's kernels"));
    return false;
}

}  // namespace axle::kernels::cudnn
