#include "dist/parallel/sync_batch_norm.h"

#include <utility>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "nn/layers/norm.h"

namespace axle::dist {
namespace {

Dims all_but_channels(const Tensor& x) {
    Dims dims = {0};
    for (int d = 2; d < x.dim(); ++d) dims.push_back(d);
    return dims;
}

// Reshapes a tensor [C] to [1, C, 1, ...], so that it broadcasts over x.
Tensor along_channels(const Tensor& v, const Tensor& x) {
    Dims sizes;
    for (int d = 0; d < x.dim(); ++d) sizes.push_back(d == 1 ? v.size(0) : 1);
    return reshape(v, sizes);
}

DType statistics_dtype(const Tensor& x) { return x.dtype() == f64 ? f64 : f32; }

// The statistics of each channel over all ranks.
struct Statistics {
    double count = 0;
    Tensor mean, var;  // shape [C]; var is the biased variance
};

// Combines the count, mean and sum of squared deviations of each rank (Chan, Golub, LeVeque,
// "Updating formulae and a pairwise algorithm for computing sample variances", 1979). The
// computation uses f64, so that counts are exact, and errors are small even if the means of the
// ranks differ much.
Statistics statistics_of(const Tensor& x_given, ProcessGroup& group) {
    const Tensor x = to(x_given, statistics_dtype(x_given));
    const std::int64_t channels = x.size(1);
    const Dims dims = all_but_channels(x);
    const TensorOptions options{.dtype = f64, .device = x.device()};
    const double own = static_cast<double>(x.numel()) / static_cast<double>(channels);
    const bool is_empty = x.numel() == 0;
    const Tensor own_mean = is_empty ? zeros({channels}, options) : to(mean(x, dims), f64);
    const Tensor own_square =
        is_empty ? zeros({channels}, options) : mul(to(var(x, dims, 0), f64), own);
    // The count, means and sums of squared deviations of each of the P ranks: [P, 1 + 2 C].
    const Tensor all = group.all_gather(cat({full({1}, own, options), own_mean, own_square}));
    const Tensor counts = narrow(all, 1, 0, 1), means = narrow(all, 1, 1, channels);
    const Tensor squares = narrow(all, 1, 1 + channels, channels);

    Statistics result;
    result.count = sum(counts).item();
    result.mean = div(sum(mul(counts, means), {0}), result.count);
    const Tensor off = sub(means, result.mean);
    result.var = div(sum(add(squares, mul(counts, mul(off, off))), {0}), result.count);
    return result;
}

void move_running(Tensor running, const Tensor& value, double momentum) {
    if (!running.defined()) return;
    running.mul_(1 - momentum);
    running.add_(to(value, running.dtype()), momentum);
}

// Values that are saved for the backward pass.
struct Saved {
    SavedTensor x, weight;
    Tensor mean, rstd;  // shape [C]; rstd is 1 / standard deviation
    double count;       // number of values per channel on all ranks
    bool has_bias;
    std::shared_ptr<ProcessGroup> group;
};

Grads gradients(const Saved& saved, const Tensor& dy_given, Needs needs) {
    const Tensor x_given = saved.x, weight = saved.weight;
    const DType dtype = statistics_dtype(x_given);
    const Tensor dy = to(dy_given, dtype), x = to(x_given, dtype);
    const Dims dims = all_but_channels(x);
    const Tensor rstd = along_channels(saved.rstd, x);
    const Tensor h = mul(sub(x, along_channels(saved.mean, x)), rstd);
    const Tensor sum_dy = sum(dy, dims), sum_dy_h = sum(mul(dy, h), dims);
    Grads result(3);
    if (needs[0]) {
        const Tensor sums = cat({sum_dy, sum_dy_h});
        saved.group->all_reduce(sums);
        const Tensor means = div(sums, saved.count);
        const std::int64_t channels = x.size(1);
        const Tensor mean_dy = along_channels(narrow(means, 0, 0, channels), x);
        const Tensor mean_dy_h = along_channels(narrow(means, 0, channels, channels), x);
        const Tensor scale =
            weight.defined() ? mul(rstd, along_channels(to(weight, dtype), x)) : rstd;
        result[0] = mul(scale, sub(sub(dy, mean_dy), mul(h, mean_dy_h)));
    }
    if (needs[1] && weight.defined()) result[1] = sum_dy_h;
    if (needs[2] && saved.has_bias) result[2] = sum_dy;
    return result;
}

class AcrossRanks : public nn::BatchNormPolicy {
  public:
    explicit AcrossRanks(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}

    Tensor normalize(const Tensor& x, Tensor running_mean, Tensor running_var, const Tensor& weight,
                     const Tensor& bias, double momentum, double eps) override {
        const profiler::OpScope scope("sync_batch_norm");
        Saved saved{SavedTensor(x), SavedTensor(weight), {}, {}, 0, bias.defined(), group_};
        Tensor y;
        {
            const NoGrad no_grad;
            const Statistics all = statistics_of(x.detach(), *group_);
            if (all.count <= 1)
                throw ShapeError(
                    str("sync_batch_norm: expected more than 1 value per channel on "
                        "all ranks together when training: x ",
                        x.shape()));
            move_running(std::move(running_mean), all.mean, momentum);
            move_running(std::move(running_var), mul(all.var, all.count / (all.count - 1)),
                         momentum);
            saved.count = all.count;
            saved.mean = to(all.mean, statistics_dtype(x));
            saved.rstd = to(rsqrt(add(all.var, eps)), statistics_dtype(x));
            y = batch_norm(x, saved.mean, to(all.var, statistics_dtype(x)), weight, bias, false, 0,
                           eps);
        }
        return record("sync_batch_norm", y, {x, weight, bias},
                      [saved = std::move(saved)](const Grads& dy, Needs needs) -> Grads {
                          if (grad_enabled()) refuse_double_backward("sync_batch_norm");
                          return gradients(saved, dy[0], needs);
                      });
    }

  private:
    std::shared_ptr<ProcessGroup> group_;
};

template <int kSpatial>
bool convert(nn::Module* module, const std::shared_ptr<nn::BatchNormPolicy>& policy) {
    auto* const norm = dynamic_cast<nn::BatchNorm<kSpatial>*>(module);
    if (norm != nullptr) norm->policy = policy;
    return norm != nullptr;
}

}  // namespace

int convert_sync_batchnorm(nn::Module& module, const std::shared_ptr<ProcessGroup>& group) {
    const auto policy = std::make_shared<AcrossRanks>(group);
    int count = 0;
    for (const auto& [name, child] : module.named_modules())
        if (convert<1>(child, policy) || convert<2>(child, policy) || convert<3>(child, policy))
            ++count;
    return count;
}

}  // namespace axle::dist
