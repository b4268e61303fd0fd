#include "nn/precision/float8.h"

#include <functional>
#include <memory>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/profiler/profiler.h"

namespace axle::nn {
namespace {

constexpr const char* kOp = "float8_linear";
// The inner dimension of an fp8 product must be a multiple of this number.
constexpr std::int64_t kMultiple = 16;

using Rounding = std::function<Float8Tensor(const Tensor&)>;

// Reshapes x to [rows, width] and adds rows of zeros until the number of rows is a multiple of 16.
Tensor pad_rows_to_multiple(const Tensor& x) {
    const Tensor rows = reshape(x, {-1, x.size(-1)});
    const std::int64_t rest = rows.size(0) % kMultiple;
    return rest == 0 ? rows : pad(rows, {0, 0, 0, kMultiple - rest});
}

Float8Tensor first_rows(const Float8Tensor& x, std::int64_t n) {
    return {narrow(x.values, 0, 0, n), x.scale};
}

// A tensor saved for the backward pass, with its scale.
struct SavedFloat8 {
    SavedTensor values, scale;
    explicit SavedFloat8(const Float8Tensor& x) : values(saved(x.values)), scale(saved(x.scale)) {}
    Float8Tensor get() const { return {values.get(), scale.get()}; }
};

}  // namespace

Float8Linear::Float8Linear(const Float8Options& options, Device device) : options_(options) {
    if (options.scaling == Float8Scaling::current) return;
    history_ = zeros({options.history_length, 3}, {.device = device});
    scales_ = ones({3, 2}, {.device = device});
    if (options.interval > 1) calls_ = zeros({1}, {.dtype = i64, .device = device});
}

// Converts the buffers back to f32, because Module::to(DType) also converts buffers.
void Float8Linear::widen_buffers() {
    for (Tensor* buffer : {&history_, &scales_})
        if (buffer->dtype() != f32) buffer->set_data(buffer->to(f32));
}

void Float8Linear::begin_call() {
    const NoGrad no_grad;
    const Tensor before = calls_.defined() ? axle::clone(scales_) : Tensor();
    update_float8_scales({.most_recent = options_.most_recent,
                          .margin = static_cast<double>(options_.margin),
                          .dtypes = {options_.forward, options_.forward, options_.gradient}},
                         history_, scales_);
    if (!calls_.defined()) return;
    // The calls are counted on the device, so that captured graphs count them too. A saved count
    // that does not fit the interval starts a new interval.
    const Tensor is_due = eq(calls_, 0);
    scales_.copy_(where(is_due, scales_, before));
    calls_.copy_(where(lt(calls_, options_.interval - 1), add(calls_, 1), zeros_like(calls_)));
}

Rounding Float8Linear::rounding(Role role, bool updates_history) const {
    const DType dtype = role == kGradient ? options_.gradient : options_.forward;
    if (options_.scaling == Float8Scaling::current)
        return [dtype, power_of_two = options_.power_of_two](const Tensor& x) {
            return to_float8(x, dtype, power_of_two);
        };
    // The scale is copied, because the next call overwrites scales_ in place.
    const Tensor scale = axle::clone(select(scales_, 0, role));
    const Tensor largest = updates_history ? select(select(history_, 0, 0), 0, role) : Tensor();
    return [dtype, scale, largest](const Tensor& x) { return to_float8(x, dtype, scale, largest); };
}

Float8Linear::Float8Linear(const Float8Linear& other) = default;
Float8Linear::~Float8Linear() = default;

std::shared_ptr<LinearPolicy> Float8Linear::clone() const {
    return std::make_shared<Float8Linear>(*this);
}

void Float8Linear::visit(Visitor& v) {
    v.buffer("amax_history", history_);
    v.buffer("scale", scales_);
    v.buffer("calls", calls_, {.required = false});
}

Tensor Float8Linear::multiply(Linear& layer, const Tensor& x_in, Activation activation) {
    const Tensor weight = layer.options().transposed ? layer.weight.t() : layer.weight;
    const bool is_off = !layer.is_training() && !options_.in_evaluation;
    if (is_off || x_in.dtype() == f64 || weight.dtype() == f64 || x_in.numel() == 0)
        return linear(x_in, weight, layer.bias, activation);
    if (x_in.dim() == 0 || x_in.size(-1) != weight.size(1))
        throw ShapeError(str(
            kOp, ": the last dimension of x must be equal to dimension 1 of weight [out, in]: x ",
            x_in.shape(), ", weight ", weight.shape()));
    // With checkpointing, the backward pass repeats the call; the repetition must not update the
    // history.
    const bool updates_history = layer.is_training() && autograd::backward_depth() == 0;
    const Tensor y = product(x_in, weight, updates_history);
    const Tensor bias = layer.bias.defined() ? autocast(layer.bias) : layer.bias;
    return apply_activation(bias.defined() ? y + bias : y, activation);
}

Tensor Float8Linear::product(const Tensor& x_in, const Tensor& weight, bool updates_history) {
    const profiler::OpScope scope(kOp);
    const bool is_delayed = options_.scaling == Float8Scaling::delayed;
    if (is_delayed) widen_buffers();
    if (is_delayed && updates_history) begin_call();
    const Rounding round_dy = rounding(kGradient, is_delayed && updates_history);
    const Tensor x = autocast(x_in).detach(), rows = pad_rows_to_multiple(x), w = weight.detach();
    const std::int64_t count = x.numel() / x.size(-1);
    const Float8Tensor x8 = rounding(kInput, updates_history)(rows);
    const Float8Tensor w8 = rounding(kWeight, updates_history)(w);
    const Float8MatmulOptions forward = {
        .dtype = x.dtype(), .fast = true, .emulate = options_.emulate};
    const auto [high_y, high_dx, high_dw_said] = options_.high_precision;
    const bool high_dw = high_dw_said || (!options_.pad_rows && count % kMultiple != 0);

    Shape shape = x.shape();
    shape[shape.size() - 1] = w.size(0);
    const Tensor y2 = high_y ? linear(narrow(rows, 0, 0, count), w)
                             : float8_matmul(first_rows(x8, count), w8, forward);
    return record(
        kOp, reshape(y2, shape), {x_in, weight},
        [x8 = SavedFloat8(x8), w8 = SavedFloat8(w8), x = saved(high_dw ? rows : Tensor()),
         w = saved(high_dx ? w : Tensor()), round_dy, high_dx, high_dw, count, forward,
         x_shape = x.shape()](const Grads& dy, Needs needs) -> Grads {
            if (grad_enabled()) refuse_double_backward(kOp);
            const Tensor dy2 = pad_rows_to_multiple(dy[0]);
            const Float8Tensor dy8 = round_dy(dy2);
            Float8MatmulOptions options = forward;
            options.fast = false;
            Grads result(2);
            if (needs[0]) {
                const Tensor dx =
                    high_dx ? matmul(narrow(dy2, 0, 0, count), w.get().to(dy2.dtype()))
                            : float8_matmul(first_rows(dy8, count), transposed(w8.get()), options);
                result[0] = reshape(dx, x_shape);
            }
            options.dtype = f32;
            if (needs[1])
                result[1] = high_dw ? matmul(transpose(dy2, 0, 1), x.get().to(dy2.dtype()))
                                    : float8_matmul(transposed(dy8), transposed(x8.get()), options);
            return result;
        });
}

bool use_float8(Linear& layer, const Float8Options& options) {
    if (layer.policy != nullptr || layer.weight.size(0) % kMultiple != 0 ||
        layer.weight.size(1) % kMultiple != 0)
        return false;
    layer.policy = std::make_shared<Float8Linear>(options, layer.weight.device());
    layer.policy->train(layer.is_training());
    return true;
}

}  // namespace axle::nn
