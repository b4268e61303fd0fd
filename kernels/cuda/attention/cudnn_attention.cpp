// Which calls of attention cuDNN does, and what they bind. Operands that lie as the engines want
// them are used where they are; others, as of a gradient that repeats one number, go through copies
// in scratch.
#include "kernels/cuda/attention/cudnn_attention.h"

#include <bit>
#include <limits>
#include <utility>

#include "kernels/cuda/attention/cudnn_attention_graph.h"
#include "kernels/cuda/attention/cudnn_scores.h"
#include "kernels/cuda/visit.cuh"
#include "kernels/error.h"

namespace axle::inline v0::kernels::cudnn {
namespace {

// Before 9.6 the sum of dq had to be cleared by the caller; 9.10.0 and 9.10.1 have a wrong backward
// pass, and up to 9.15.0 it is wrong where the keys are no multiple of 128.
constexpr std::int64_t kOldest = 90600;
bool has_backward(std::int64_t keys) {
    const std::int64_t v = version();
    return v != 91000 && v != 91001 && (v > 91500 || keys % 128 == 0);
}

// Below this many multiplications of a product, and for a few queries at a time (as where a text
// grows word by word), the own kernels are quick and a plan for each new length is not.
constexpr std::int64_t kFewest = 1 << 20;
constexpr std::int64_t kFewestQueries = 16;

// Of the partial sums that the deterministic backward pass keeps; they grow with the square of the
// length.
constexpr std::int64_t kMostWorkspace = std::int64_t{2} << 30;

// Whether cuDNN does such calls, wherever their operands lie.
bool takes(const ConstView& q, const ConstView& k, const AttentionParams& params) {
    const std::int64_t depth = q.shape[3], queries = q.shape[2];
    return is_half(q.dtype) && depth % 8 == 0 && depth >= 16 && depth <= 256 &&
           params.dropout_p < 1 && queries >= kFewestQueries && q.numel() * k.shape[2] >= kFewest &&
           (!params.causal || (params.causal_offset == 0 && queries == k.shape[2])) &&
           version() >= kOldest;
}

bool is_aligned(const ConstView& x) { return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0; }
// Rows of 16-bit numbers, each aligned to 16 bytes.
bool suits(const ConstView& x) {
    if (!is_aligned(x) || x.stride[3] != 1) return false;
    for (int d = 0; d < 3; ++d)
        if (x.shape[d] != 1 && (x.stride[d] <= 0 || x.stride[d] % 8 != 0)) return false;
    return true;
}

// x, or dense scratch of its shape where x does not suit or has no data.
View fitting(DeviceScratch& scratch, const ConstView& x, const ConstView& shape) {
    if (x.data == nullptr || !suits(x))
        return dense_like(shape, scratch.take<char>(shape.numel() * size_of(shape.dtype)),
                          shape.dtype);
    View y;
    y.data = const_cast<void*>(x.data), y.dtype = x.dtype, y.ndim = x.ndim;
    for (int d = 0; d < x.ndim; ++d) y.shape[d] = x.shape[d], y.stride[d] = x.stride[d];
    return y;
}
View fitting(DeviceScratch& scratch, const ConstView& x) { return fitting(scratch, x, x); }
void bring(Cuda& on, const ConstView& from, const View& to) {
    if (from.data != to.data) copy(on, from, to);
}

// What a hidden score is: older versions make NaN of an infinity.
float hidden_score() {
    return version() < 91000 ? std::numeric_limits<float>::lowest()
                             : -std::numeric_limits<float>::infinity();
}

enum Kind : std::int64_t { kForward = 1, kBackward = 2 };

// Never destroyed: cuDNN may be gone before static objects are.
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
    if (gradients.deterministic) limits.workspace = kMostWorkspace;
    return plans().find(on, std::move(key), limits,
                        [&] { return attention_backward_graph(at, gradients); });
}

// Numbers that drop weights can only be drawn again by the same library: whether it will be able
// to, for gradients that lie as those of core do.
bool can_return(Cuda& on, const AttentionTensors& at) {
    if (!has_backward(at.k.shape[2])) return false;
    const auto gradient = [&](const ConstView& x) {
        if (x.contiguous()) return x;
        View y = dense_like(x, nullptr, x.dtype);  // [B, H, T, D] in memory as [B, T, H, D]
        y.stride[1] = x.shape[3], y.stride[2] = x.shape[1] * x.shape[3];
        return ConstView(y);
    };
    return backward_plan(on, at,
                         {at.out, gradient(at.q), gradient(at.k), gradient(at.v),
                          on.deterministic}) != nullptr;
}

// What both passes bind by the same means: the bias, and the numbers that drop weights.
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
        if (params.dropout_p > 0) write_state(on, params.random, seed, offset);
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
    if (!takes(q, k, params) || !has_backward(k.shape[2]) || handle_for(on) == nullptr)
        return false;
    DeviceScratch scratch(on);
    const Extras extras(scratch, q, mask, params);
    const View to_q = fitting(scratch, q), to_k = fitting(scratch, k), to_v = fitting(scratch, v),
               to_out = fitting(scratch, out), to_dout = fitting(scratch, dout);
    // A gradient that nobody wants goes to scratch.
    const View to_dq = fitting(scratch, dq, q), to_dk = fitting(scratch, dk, k),
               to_dv = fitting(scratch, dv, v);
    const View row_lse = dense_like(lse, scratch.take<float>(lse.numel()), lse.dtype);
    const AttentionTensors at = {to_q,    to_k,        to_v,          to_out,
                                 row_lse, extras.bias, params.causal, params.dropout_p};
    const AttentionGradients gradients = {to_dout, to_dq, to_dk, to_dv, on.deterministic};
    const Plan* const plan = backward_plan(on, at, gradients);
    if (plan == nullptr) return leave_to_own_kernels();

    const bool as_is = mask.data == nullptr && lse.contiguous() && is_aligned(lse);
    if (!as_is) without_infinity(on, lse, row_lse);
    bring(on, q, to_q), bring(on, k, to_k), bring(on, v, to_v);
    bring(on, out, to_out), bring(on, dout, to_dout);
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
        if (to.data != nullptr) bring(on, from, to);
    return true;
}

}  // namespace

bool attention(Cuda& on, const ConstView& q, const ConstView& k, const ConstView& v,
               const ConstView& mask, const AttentionParams& params, const View& out,
               const View& lse) {
    const bool drops = params.dropout_p > 0;
    if (!takes(q, k, params) || !suits(q) || !suits(k) || !suits(v) || !suits(out) ||
        !lse.contiguous() || !is_aligned(lse) || (drops && on.deterministic) ||
        handle_for(on) == nullptr)
        return false;
    DeviceScratch scratch(on);
    const Extras extras(scratch, q, mask, params);
    const AttentionTensors at = {q, k, v, out, lse, extras.bias, params.causal, params.dropout_p};
    const Plan* const plan = forward_plan(on, at);
    if (plan == nullptr || (drops && !can_return(on, at))) return leave_to_own_kernels();

    extras.queue(on);
    using Values = ForwardValues;
    std::vector<Binding> bindings = {{Values::q, q.data},
                                     {Values::k, k.data},
                                     {Values::v, v.data},
                                     {Values::out, out.data},
                                     {Values::lse, lse.data}};
    extras.bind<Values>(bindings);
    if (!plan->run(on, bindings)) return false;
    if (mask.data != nullptr) blank_rows(on, mask, params.causal, out, lse);
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
        throw DeviceError(str(current_op, ": cuDNN ", version(), " has dropped weights and can't ",
                              "compute their gradients: use_deterministic_algorithms(true) ",
                              "leaves dropout to Axle's own kernels"));
    return false;
}

}  // namespace axle::inline v0::kernels::cudnn
