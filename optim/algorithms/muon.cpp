#include "optim/algorithms/muon.h"

#include <algorithm>
#include <cmath>

#include "core/launch.h"
#include "core/ops.h"
#include "kernels/ops/matmul.h"
#include "optim/rule_optimizer_impl.h"

namespace axle::optim {
namespace {

constexpr const char* kMuonBuffers[] = {"momentum_buffer"};

// Writes the product of two bf16 matrices to a matrix in f32, or adds it.
void multiply(const Tensor& a, const Tensor& b, Tensor sum, bool accumulate) {
    kernels::MatmulEpilogue epilogue;
    epilogue.accumulate = accumulate;
    launch(sum.device(),
           [&](auto& on) { kernels::matmul(on, a.view(), b.view(), sum.view(), epilogue); });
}

// Returns an almost orthogonal matrix with the singular vectors of x. As in PyTorch, results of
// products are rounded to bf16, and their sums are in f32.
Tensor orthogonalized(const Tensor& x, const MuonOptions& o) {
    const bool tall = x.size(0) > x.size(1);
    Tensor y = (tall ? transpose(x, 0, 1) : x).to(bf16);
    const Tensor exact = y.to(f32), norm = sqrt(sum(exact * exact)).to(bf16).to(f32);
    y = (exact / clamp(norm, o.eps, std::nullopt)).to(bf16);
    const auto [a, b, c] = o.ns_coefficients;
    for (std::int64_t i = 0; i < o.ns_steps; ++i) {
        const Tensor gram = matmul(y, transpose(y, 0, 1));
        const Tensor square = empty(gram.shape(), {.device = x.device()});
        multiply(gram, gram, square, false);
        const Tensor factor = (gram.to(f32) * b + square * c).to(bf16);
        const Tensor next = y.to(f32) * a;
        multiply(factor, y, next, true);
        y = next.to(bf16);
    }
    return (tall ? transpose(y, 0, 1) : y).to(f32);
}

double rate_of(const Tensor& param, const MuonOptions& o) {
    const auto rows = static_cast<double>(param.size(0));
    const auto columns = static_cast<double>(param.size(1));
    const std::string form = o.adjust_lr_fn.value_or("original");
    if (form == "match_rms_adamw") return o.lr * 0.2 * std::sqrt(std::max(rows, columns));
    const double ratio = rows / columns;
    return o.lr * std::sqrt(form == "original" ? std::max(1.0, ratio) : ratio);
}

}  // namespace

std::vector<NamedOption> MuonOptions::named() {
    return {{"lr", &lr},
            {"weight_decay", &weight_decay},
            {"momentum", &momentum},
            {"nesterov", &nesterov},
            {"ns_coefficients", &ns_coefficients},
            {"eps", &eps},
            {"ns_steps", &ns_steps},
            {"adjust_lr_fn", &adjust_lr_fn}};
}

void MuonOptions::check(const char* op) const {
    check_not_negative(op, {{"lr", lr}, {"weight_decay", weight_decay}, {"eps", eps}});
    if (!(momentum >= 0 && momentum < 1))
        throw ValueError(str(op, ": momentum must be in [0, 1): ", momentum));
    if (!(ns_steps >= 1 && ns_steps < 100))
        throw ValueError(str(op, ": ns_steps must be in [1, 100): ", ns_steps));
    const std::string form = adjust_lr_fn.value_or("original");
    if (form != "original" && form != "match_rms_adamw" && form != "spectral_unclamped")
        throw ValueError(str(op,
                             ": adjust_lr_fn must be original, match_rms_adamw or "
                             "spectral_unclamped: ",
                             form));
    refuse_stochastic_rounding(op, stochastic_rounding);
}

void MuonOptions::check_param(const Tensor& param) {
    if (param.dim() != 2)
        throw ShapeError(str("Muon: parameters must have 2 dimensions: a parameter is ",
                             param.shape(), "; use AdamW for it"));
}

std::span<const char* const> Muon::buffer_names() const { return kMuonBuffers; }

void Muon::step_param(const Tensor& param, const ParamState& state, const TensorStep& step,
                      const Group& group) {
    const Tensor gradient = step.gradient(param, false);
    const Tensor& old = state.buffers[0];
    const Tensor momentum = step.write(old, lerp(old, gradient, 1 - group.momentum));
    const Tensor update = group.nesterov ? lerp(gradient, momentum, group.momentum) : momentum;
    const Tensor values = param.detach().to(gradient.dtype());
    step.write(param.detach(),
               values * (1 - group.lr * group.weight_decay) -
                   orthogonalized(update, group).to(gradient.dtype()) * rate_of(param, group));
}

}  // namespace axle::optim
