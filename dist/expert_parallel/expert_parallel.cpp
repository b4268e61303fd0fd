#include "dist/expert_parallel/expert_parallel.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/autograd/local_part.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "dist/group/shared_error.h"
#include "dist/ops/collective_ops.h"
#include "dist/tensor_parallel/slices.h"
#include "nn/layers/mixture.h"

namespace axle::dist {
namespace {

constexpr const char* kDivide = "expert_parallelize";

using Group = std::shared_ptr<ProcessGroup>;
using RowCounts = std::vector<std::int64_t>;

// The expert matrices of one rank. Their gradients are complete after backward, so they are not
// reduced.
class ExpertSlice : public GroupSlice {
  public:
    using GroupSlice::GroupSlice;
    bool is_reduced() const override { return true; }
};

// Returns x. In backward, its gradient is multiplied by `factor`.
Tensor with_scaled_gradient(const Tensor& x, double factor) {
    return record("scale_gradient", x.detach(), {x},
                  [factor](const Grads& dy, Needs) -> Grads { return {mul(dy[0], factor)}; });
}

std::int64_t sum_of(RowCounts::const_iterator begin, std::int64_t count) {
    return std::accumulate(begin, begin + count, std::int64_t{0});
}

class DividedExperts : public nn::ExpertPolicy {
  public:
    DividedExperts(Group group, Group replicas)
        : group_(std::move(group)), replicas_(std::move(replicas)) {}

    Tensor compute(const nn::MixtureOfExperts& layer, const Tensor& rows,
                   const RowCounts& counts) override {
        const int ranks = group_->size();
        const std::int64_t experts = std::ssize(counts) / ranks;
        RowCounts sends, receives;
        std::vector<RowCounts> received;  // by rank, for each expert of this rank
        {
            const NoGrad no_grad;
            const Tensor all = group_->all_gather(tensor(counts));
            for (int rank = 0; rank < ranks; ++rank) {
                RowCounts from;
                for (const double count :
                     all[rank].narrow(0, group_->rank() * experts, experts).to_vector())
                    from.push_back(static_cast<std::int64_t>(count));
                sends.push_back(sum_of(counts.begin() + rank * experts, experts));
                receives.push_back(sum_of(from.begin(), experts));
                received.push_back(std::move(from));
            }
        }
        const Tensor arrived = exchange_rows(rows, sends, receives, group_);
        const auto [by_expert, by_rank, own] = orders_of(received, experts);
        const auto index = [&](const RowCounts& order) {
            return tensor(order, {std::ssize(order)}, {.dtype = i64}).to(rows.device());
        };
        const Tensor y = layer.compute(weights_of(layer.experts),
                                       index_select(arrived, 0, index(by_expert)), own);
        return exchange_rows(index_select(y, 0, index(by_rank)), receives, sends, group_);
    }

  private:
    struct Orders {
        RowCounts by_expert;  // for each row in expert order, its position in rank order
        RowCounts by_rank;    // the inverse permutation
        RowCounts counts;     // the number of rows of each expert
    };
    static Orders orders_of(const std::vector<RowCounts>& received, std::int64_t experts) {
        Orders orders;
        for (std::int64_t e = 0; e < experts; ++e) {
            std::int64_t first = 0, count = 0;  // the rank's first row; the expert's number of rows
            for (const RowCounts& from : received) {
                const std::int64_t begin = first + sum_of(from.begin(), e);
                const std::int64_t n = from[static_cast<std::size_t>(e)];
                for (std::int64_t i = 0; i < n; ++i) orders.by_expert.push_back(begin + i);
                first += sum_of(from.begin(), experts);
                count += n;
            }
            orders.counts.push_back(count);
        }
        orders.by_rank.resize(orders.by_expert.size());
        for (std::size_t i = 0; i < orders.by_expert.size(); ++i)
            orders.by_rank[static_cast<std::size_t>(orders.by_expert[i])] =
                static_cast<std::int64_t>(i);
        return orders;
    }

    // Returns the weights of this rank's experts. Their gradients are divided by the number of
    // ranks of all replicas, because losses are means over these ranks.
    nn::ExpertWeights weights_of(const nn::ExpertWeights& own) const {
        std::vector<Tensor> all = {own.gate, own.up, own.down};
        double ranks = group_->size();
        if (replicas_ != nullptr) {
            all = copy_to_group(all, replicas_);
            ranks *= replicas_->size();
        }
        for (Tensor& weight : all) weight = with_scaled_gradient(weight, 1 / ranks);
        return {all[0], all[1], all[2]};
    }

    Group group_, replicas_;
};

}  // namespace

void expert_parallelize(nn::Module& model, const Group& group, const Group& replicas) {
    std::vector<nn::MixtureOfExperts*> layers;
    const std::vector<Tree> all = gather_or_throw(*group, kDivide, [&]() -> Tree {
        std::string text;
        for (const auto& [name, module] : model.named_modules()) {
            auto* const layer = dynamic_cast<nn::MixtureOfExperts*>(module);
            if (layer == nullptr) continue;
            layers.push_back(layer);
            const std::int64_t experts = layer->options().experts;
            if (layer->policy != nullptr)
                throw UsageError(str(kDivide, ": the layer ", in_quotes(name),
                                     " already has a policy; ", kDivide,
                                     "() can be called once per model"));
            if (experts % group->size() != 0)
                throw ValueError(str(kDivide, ": the ", experts, " experts of ", in_quotes(name),
                                     " can't be divided among ", group->size(), " ranks"));
            for (const Tensor& weight :
                 {layer->experts.gate, layer->experts.up, layer->experts.down}) {
                if (autograd::is_sharded(weight) || autograd::has_gradient(weight))
                    throw UsageError(str(
                        kDivide, ": the experts of ", in_quotes(name),
                        autograd::is_sharded(weight)
                            ? " are sharded over processes; divide them before the model is sharded"
                            : " have a gradient; call zero_grad() first"));
                text += str(name, ' ', weight.dtype(), ' ', weight.shape(), '\n');
            }
        }
        if (layers.empty()) throw ValueError(str(kDivide, ": the model has no MixtureOfExperts"));
        return text;
    });
    for (std::size_t rank = 1; rank < all.size(); ++rank)
        if (all[rank].string() != all[0].string())
            throw ValueError(str(kDivide, ": ranks 0 and ", rank, " have different models"));
    if (group->size() == 1 && replicas == nullptr) return;
    for (nn::MixtureOfExperts* const layer : layers) {
        for (const Tensor& weight : {layer->experts.gate, layer->experts.up, layer->experts.down}) {
            if (replicas != nullptr) replicas->broadcast(weight.detach());
            group->broadcast(weight.detach());
            autograd::set_slice(weight, std::make_shared<ExpertSlice>(
                                            autograd::SliceLayout{.whole = weight.shape(),
                                                                  .dim = 0,
                                                                  .segments = 1,
                                                                  .padded = weight.size(0),
                                                                  .parts = group->size(),
                                                                  .part = group->rank()},
                                            group));
        }
        layer->policy = std::make_shared<DividedExperts>(group, replicas);
    }
}

}  // namespace axle::dist
