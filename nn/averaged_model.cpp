#include "nn/averaged_model.h"

#include <ranges>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "nn/layers/norm.h"

namespace axle::nn {
namespace {

void check_same(const StateDict& average, const StateDict& model) {
    if (average.size() != model.size())
        throw ShapeError(str("AveragedModel: the model must have the same tensors as the average: ",
                             "the model has ", model.size(), " tensors, the average has ",
                             average.size()));
    for (std::size_t i = 0; i < average.size(); ++i)
        if (average[i].first != model[i].first ||
            average[i].second.shape() != model[i].second.shape())
            throw ShapeError(
                str("AveragedModel: the model must have the same tensors as the average: the model "
                    "has ",
                    model[i].first, " ", model[i].second.shape(), ", the average has ",
                    average[i].first, " ", average[i].second.shape()));
}

// Requires that check_same() accepts averages and tensors.
void update_tensors(const StateDict& averages, const StateDict& tensors, std::int64_t updates,
                    const AverageOptions& options, bool copies) {
    for (std::size_t i = 0; i < averages.size(); ++i) {
        Tensor average = averages[i].second.detach();
        const Tensor latest = tensors[i].second.detach().to(average.device()).to(average.dtype());
        if (copies || updates == 0 || !is_floating(average.dtype())) {
            average.copy_(latest);
        } else {
            const double weight =
                options.decay ? 1 - *options.decay : 1 / (static_cast<double>(updates) + 1);
            average.copy_(lerp(average, latest, weight));
        }
    }
}

}  // namespace

void check_average(const AverageOptions& options) {
    if (options.decay && !(*options.decay >= 0 && *options.decay <= 1))
        throw ValueError(str("AveragedModel: decay must be in [0, 1]: ", *options.decay));
}

void update_average(Module& average, const Module& model, std::int64_t updates,
                    const AverageOptions& options) {
    const NoGrad no_grad;
    const StateDict parameters = average.named_parameters();
    const StateDict buffers = average.named_buffers({.include_constant = false});
    const StateDict new_parameters = model.named_parameters();
    const StateDict new_buffers = model.named_buffers({.include_constant = false});
    check_same(parameters, new_parameters);
    check_same(buffers, new_buffers);
    update_tensors(parameters, new_parameters, updates, options, false);
    update_tensors(buffers, new_buffers, updates, options, !options.use_buffers);
}

struct BatchNormUpdate::Private {
    // Functions that restore a mode or a momentum.
    std::vector<std::function<void()>> restore;
    bool needed = false;
};

namespace {

// Resets the statistics of a BatchNorm<kSpatial>, and makes it average all batches. Returns false
// if the module is another module or has no running statistics.
template <int kSpatial>
bool reset_statistics(Module& module, std::vector<std::function<void()>>& restore) {
    auto* const norm = dynamic_cast<BatchNorm<kSpatial>*>(&module);
    if (norm == nullptr || !norm->running_mean.defined()) return false;
    restore.emplace_back([norm, momentum = norm->momentum] { norm->momentum = momentum; });
    norm->momentum = std::nullopt;
    norm->running_mean.zero_();
    norm->running_var.fill_(1);
    norm->num_batches_tracked.zero_();
    return true;
}

}  // namespace

BatchNormUpdate::BatchNormUpdate(Module& model) : private_(make_owning<Private>()) {
    for (auto& [name, module] : model.named_modules()) {
        bool& needed = private_->needed;
        needed |= reset_statistics<1>(*module, private_->restore);
        needed |= reset_statistics<2>(*module, private_->restore);
        needed |= reset_statistics<3>(*module, private_->restore);
    }
    private_->restore.emplace_back(
        [&model, training = model.is_training()] { model.train(training); });
    model.train(true);
}

BatchNormUpdate::~BatchNormUpdate() {
    // Restores in reverse order, because a module with two names was changed twice.
    for (const std::function<void()>& restore : std::views::reverse(private_->restore)) restore();
}

bool BatchNormUpdate::needed() const { return private_->needed; }

}  // namespace axle::nn
