#include "optim/clip.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/autograd/tensor_slice.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/optimizer.h"
#include "optim/grad_table.h"

namespace axle::optim {
namespace {

void check_norm_type(const char* op, double norm_type) {
    if (norm_type == 0 || std::isnan(norm_type) ||
        norm_type == -std::numeric_limits<double>::infinity())
        throw ValueError(str(
            op,
            ": norm_type must be positive infinity or a finite number other than 0: ", norm_type));
}

// Returns the norm of the gradients in the table, in f64.
Tensor norm_of(const GradTable& grads, double norm_type) {
    Tensor norm = empty({}, {.dtype = f64, .device = grads.device()});
    launch(norm.device(), [&](auto& on) {
        kernels::norm(on, grads.runs(), norm_type, static_cast<double*>(norm.raw_data()));
    });
    return norm;
}

// Returns the norm of several tensors as one vector. `norms` is 1-d and contains the norm of each
// tensor.
Tensor norm_of_norms(const Tensor& norms, double norm_type) {
    if (std::isinf(norm_type)) return max(norms);
    return pow(sum(pow(norms, norm_type)), 1 / norm_type);
}

// Returns the norm of the gradients of parameters. For slices, includes only the slices of this
// process. The norms of the local parts of sharded parameters are combined in rank order, so that
// all processes get the same bits.
Tensor norm_of_parts(const char* op, const std::vector<Tensor>& params, const GradTable& grads,
                     double norm_type) {
    // The sharded parameters, grouped by the processes over which they are sharded, and the others.
    std::vector<std::pair<const ShardProvider*, std::vector<Tensor>>> sharded;
    std::vector<Tensor> whole;
    for (const Tensor& param : params) {
        if (!autograd::is_sharded(param)) {
            whole.push_back(param);
            continue;
        }
        const ShardProvider* const provider = param.impl()->storage->provider();
        auto found = std::ranges::find_if(sharded, [&](const auto& entry) {
            return entry.first->processes() == provider->processes();
        });
        if (found == sharded.end()) found = sharded.insert(found, {provider, {}});
        found->second.push_back(param);
    }
    if (sharded.empty()) return norm_of(grads, norm_type);
    std::vector<Tensor> norms;
    if (!whole.empty()) norms.push_back(norm_of(GradTable(op, whole), norm_type).unsqueeze(0));
    for (const auto& [provider, group] : sharded)
        norms.push_back(provider->gather_numbers(norm_of(GradTable(op, group), norm_type)));
    return norm_of_norms(cat(norms, 0), norm_type);
}

// Returns the norm of the gradients of all parameters. A slice that several processes have counts
// once. Throws ValueError for an invalid norm_type.
Tensor total_norm_of(const char* op, const std::vector<Tensor>& params, const GradTable& grads,
                     double norm_type) {
    check_norm_type(op, norm_type);
    struct Slices {
        std::shared_ptr<const autograd::TensorSlice> slice;  // the slice of one of the parameters
        std::vector<Tensor> counted;
    };
    std::vector<Slices> divided;  // grouped by the processes that share the tensors
    std::vector<Tensor> whole;
    for (const Tensor& param : params) {
        auto slice = autograd::slice_of(param);
        if (slice == nullptr) {
            whole.push_back(param);
            continue;
        }
        auto found = std::ranges::find_if(divided, [&](const Slices& entry) {
            return entry.slice->processes() == slice->processes();
        });
        const bool counts = slice->is_first_copy();
        if (found == divided.end()) found = divided.insert(found, {std::move(slice), {}});
        if (counts) found->counted.push_back(param);
    }
    if (divided.empty()) return norm_of_parts(op, params, grads, norm_type);
    const auto norm_over = [&](const std::vector<Tensor>& some) {
        return norm_of_parts(op, some, GradTable(op, some), norm_type).to(grads.device());
    };
    std::vector<Tensor> norms;
    if (!whole.empty()) norms.push_back(norm_over(whole).unsqueeze(0));
    for (const Slices& entry : divided)
        norms.push_back(entry.slice->gather_numbers(norm_over(entry.counted)));
    return norm_of_norms(cat(norms, 0), norm_type);
}

void clip(GradTable& grads, double max_norm, const Tensor& norm) {
    Tensor factor = empty({}, {.dtype = f64, .device = grads.device()});
    launch(grads.device(), [&](auto& on) {
        double* const coefficient = static_cast<double*>(factor.raw_data());
        kernels::clip_coefficient(on, static_cast<const double*>(norm.raw_data()), max_norm,
                                  coefficient);
        kernels::scale(on, grads.runs(), coefficient);
    });
    grads.changed();
}

}  // namespace

Tensor get_total_norm(const std::vector<Tensor>& params, double norm_type) {
    const profiler::OpScope scope("get_total_norm");
    const NoGrad no_grad;
    const GradTable grads("get_total_norm", params);
    return total_norm_of("get_total_norm", params, grads, norm_type).to(grads.norm_dtype());
}

void clip_grads_with_norm_(const std::vector<Tensor>& params, double max_norm,
                           const Tensor& total_norm) {
    const profiler::OpScope scope("clip_grads_with_norm_");
    const NoGrad no_grad;
    if (total_norm.numel() != 1)
        throw ShapeError(str("clip_grads_with_norm_: total_norm must have one element: it is ",
                             total_norm.shape()));
    GradTable grads("clip_grads_with_norm_", params);
    clip(grads, max_norm, total_norm.to(f64).to(grads.device()));
}

Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
    const profiler::OpScope scope("clip_grad_norm_");
    const NoGrad no_grad;
    GradTable grads("clip_grad_norm_", params);
    const Tensor norm = total_norm_of("clip_grad_norm_", params, grads, norm_type);
    if (error_if_nonfinite && !std::isfinite(norm.item()))
        throw ValueError(str("clip_grad_norm_: the norm of the gradients is not finite: order ",
                             norm_type, ", norm ", norm.item()));
    clip(grads, max_norm, norm);
    return norm.to(grads.norm_dtype());
}

void clip_grad_value_(const std::vector<Tensor>& params, double clip_value) {
    const profiler::OpScope scope("clip_grad_value_");
    if (!(clip_value >= 0))
        throw ValueError(str("clip_grad_value_: clip_value must be 0 or more: ", clip_value));
    const NoGrad no_grad;
    GradTable grads("clip_grad_value_", params);
    launch(grads.device(),
           [&](auto& on) { kernels::clamp(on, grads.runs(), -clip_value, clip_value); });
    grads.changed();
}

void scale_grads_(const std::vector<Tensor>& params, const Tensor& factor) {
    const profiler::OpScope scope("scale_grads_");
    const NoGrad no_grad;
    if (factor.dtype() != f64)
        throw DTypeError(str("scale_grads_: the factor must be float64: it is ", factor.dtype()));
    if (factor.numel() != 1)
        throw ShapeError(
            str("scale_grads_: the factor must have one element: it is ", factor.shape()));
    GradTable grads("scale_grads_", params);
    if (grads.runs().empty()) return;
    if (factor.device() != grads.device())
        throw DeviceError(
            str("scale_grads_: the factor must be on the device of the gradients: it is on ",
                factor.device(), ", the gradients are on ", grads.device()));
    launch(grads.device(),
           [&](auto& on) { kernels::scale(on, grads.runs(), factor.data<double>()); });
    grads.changed();
}

}  // namespace axle::optim
