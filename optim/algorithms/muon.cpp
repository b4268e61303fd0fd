#include "optim/algorithms/muon.h"

#include <algorithm>
#include <cmath>

#include "core/ops.h"
#include "optim/rule_optimizer_impl.h"

namespace axle::optim {
namespace {

constexpr const char* kMuonBuffers[] = {"momentum_buffer"};

// Rounds to bf16, because PyTorch computes in bf16, but returns f32 for the sums of the next
// product.
Tensor rounded(const Tensor& x) { return x.to(bf16).to(f32); }

// Returns an almost orthogonal matrix with the singular vectors of x.
Tensor orthogonalized(const Tensor& x, const MuonOptions& o) {
    const bool tall = x.size(0) > x.size(1);
    Tensor y = rounded(tall ? transpose(x, 0, 1) : x);
    const Tensor norm = rounded(sqrt(sum(y * y)));
    y = rounded(y / clamp(norm, o.eps, std::nullopt));
    const auto [a, b, c] = o.ns_coefficients;
    for (std::int64_t i = 0; i < o.ns_steps; ++i) {
        const Tensor gram = rounded(matmul(y, transpose(y, 0, 1)));
        const Tensor factor = rounded(gram * b + matmul(gram, gram) * c);
        y = rounded(y * a + matmul(factor, y));
    }
    return tall ? transpose(y, 0, 1) : y;
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
