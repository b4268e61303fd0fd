#include "optim/algorithms/adamw_8bit.h"

#include <algorithm>
#include <cmath>

#include "core/ops.h"
#include "optim/rule_optimizer_impl.h"

namespace axle::optim {
namespace {

constexpr const char* kMomentBuffers[] = {"state1", "state2", "absmax1", "absmax2"};
// The number of elements that are updated together, a multiple of kBlock.
constexpr std::int64_t kChunk = std::int64_t{1} << 18;

bool is_quantized(const Tensor& param) { return param.numel() >= AdamW8bit::kMinElements; }

// The 256 numbers that the codes of a moment stand for, in ascending order, and the 255 limits
// between neighboring numbers.
struct Code {
    Tensor numbers, limits;
};

Code code_on(bool has_sign, DType dtype, Device device) {
    const Tensor numbers = AdamW8bit::dynamic_code(has_sign).to(dtype);
    const Tensor limits = (narrow(numbers, 0, 0, 255) + narrow(numbers, 0, 1, 255)) / 2.0;
    return {numbers.to(device), limits.to(device)};
}

// Returns x [n] as [blocks, 256], with zeros at the end.
Tensor in_blocks(const Tensor& x) {
    const std::int64_t rest = x.numel() % AdamW8bit::kBlock;
    return view(rest == 0 ? x : pad(x, {0, AdamW8bit::kBlock - rest}), {-1, AdamW8bit::kBlock});
}

// Returns the moment of the elements with these codes.
Tensor dequantized(const Tensor& codes, const Tensor& largest, const Code& code) {
    const Tensor numbers = index_select(code.numbers, 0, codes.to(i32));
    return narrow(flatten(in_blocks(numbers) * unsqueeze(largest, 1)), 0, 0, codes.numel());
}

// Writes the codes of a moment and the largest magnitude of each block.
void quantize(const Tensor& moment, const Code& code, const TensorStep& step, const Tensor& codes,
              const Tensor& largest) {
    const Tensor blocks = in_blocks(moment);
    const Tensor most = amax(abs(blocks), {1}, true);
    const Tensor scaled = blocks / where(most == 0.0, 1.0, most);
    step.write(largest, flatten(most));
    step.write(codes, narrow(flatten(bucketize(scaled, code.limits)), 0, 0, codes.numel()));
}

// The factors of one step. The tensors are 0-d and have the dtype of TensorStep::gradient().
struct Factors {
    double eps, decay;
    Tensor rate, root;  // lr / (1 - beta1^t), and sqrt(1 - beta2^t)
};

// Returns the parameter after the step.
Tensor moved(const Tensor& values, const Tensor& mean, const Tensor& square, const Factors& f) {
    return values * f.decay - mean / (sqrt(square) / f.root + f.eps) * f.rate;
}

}  // namespace

std::vector<NamedOption> AdamW8bitOptions::named() {
    return {{"lr", &lr}, {"betas", &betas}, {"eps", &eps}, {"weight_decay", &weight_decay}};
}

void AdamW8bitOptions::check(const char* op) const {
    check_not_negative(op, {{"lr", lr}, {"eps", eps}, {"weight_decay", weight_decay}});
    check_betas(op, betas);
    refuse_stochastic_rounding(op, stochastic_rounding);
}

// For each e from 0 to 6, [0.1, 1] is divided into 2^e (with a sign) or 2^(e + 1) equal parts, and
// each number is 10^(e - 6) times the middle of a part. The numbers 0 and 1 complete the 256.
Tensor AdamW8bit::dynamic_code(bool has_sign) {
    std::vector<double> numbers = {0, 1};
    for (int e = 0; e < 7; ++e) {
        const int parts = has_sign ? 1 << e : 2 << e;
        for (int i = 0; i < parts; ++i) {
            const double middle = 0.1 + 0.9 * (i + 0.5) / parts;
            const double number = std::pow(10.0, e - 6) * middle;
            numbers.push_back(number);
            if (has_sign) numbers.push_back(-number);
        }
    }
    std::ranges::sort(numbers);
    return tensor(numbers, {256}, {.dtype = f32});
}

std::span<const char* const> AdamW8bit::buffer_names() const { return kMomentBuffers; }

std::optional<Shape> AdamW8bit::buffer_shape(const Tensor& param, std::size_t,
                                             std::size_t buffer) const {
    if (buffer < 2) return param.shape();
    if (!is_quantized(param)) return std::nullopt;
    return Shape{(param.numel() + kBlock - 1) / kBlock};
}

DType AdamW8bit::buffer_dtype(const Tensor& param, std::size_t buffer) const {
    return buffer < 2 && is_quantized(param) ? u8 : Optimizer::buffer_dtype(param, buffer);
}

void AdamW8bit::step_param(const Tensor& param, const ParamState& state, const TensorStep& step,
                           const Group& group) {
    const Tensor gradient = flatten(step.gradient(param, false));
    const DType wide = gradient.dtype();
    const Tensor t = step.t.to(f64);
    const auto [beta1, beta2] = group.betas;
    const Factors factors = {.eps = group.eps,
                             .decay = 1 - group.lr * group.weight_decay,
                             .rate = (group.lr / (1.0 - pow(beta1, t))).to(wide),
                             .root = sqrt(1.0 - pow(beta2, t)).to(wide)};
    const Tensor values = flatten(param.detach());  // may be a copy
    const Tensor mean = flatten(state.buffers[0]), square = flatten(state.buffers[1]);
    const bool quantized = is_quantized(param);
    const Code signed_code = quantized ? code_on(true, wide, param.device()) : Code();
    const Code code = quantized ? code_on(false, wide, param.device()) : Code();
    for (std::int64_t first = 0; first < param.numel(); first += kChunk) {
        const std::int64_t n = std::min(kChunk, param.numel() - first);
        const auto part = [&](const Tensor& x) { return narrow(x, 0, first, n); };
        const auto scales = [&](std::size_t b) {
            return narrow(state.buffers[b], 0, first / kBlock, (n + kBlock - 1) / kBlock);
        };
        const Tensor g = part(gradient);
        Tensor m = part(mean), v = part(square);
        if (quantized) {
            m = dequantized(m, scales(2), signed_code);
            v = dequantized(v, scales(3), code);
        }
        m = m * beta1 + g * (1 - beta1);
        v = v * beta2 + g * g * (1 - beta2);
        step.write(part(values), moved(part(values).to(wide), m, v, factors));
        if (quantized) {
            quantize(m, signed_code, step, part(mean), scales(2));
            quantize(v, code, step, part(square), scales(3));
        } else {
            step.write(part(mean), m);
            step.write(part(square), v);
        }
    }
    if (!param.is_contiguous()) param.detach().copy_(view(values, param.shape()));
}

}  // namespace axle::optim
