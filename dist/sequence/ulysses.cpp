#include "dist/sequence/ulysses.h"

#include <string>
#include <utility>

#include "core/attention/attention_part.h"
#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "dist/group/shared_error.h"
#include "dist/ops/collective_ops.h"
#include "dist/sequence/self_attention.h"

namespace axle::dist {
namespace {

constexpr const char* kAttention = "sequence parallel attention";
constexpr const char* kAdapter = "deepspeed_ulysses_dl_adapter";
constexpr std::int64_t kIgnored = -100;  // the default ignore_index of cross_entropy()

void check_operands(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t ranks) {
    check_self_attention(kAttention, q, k, v);
    if (q.size(1) % ranks != 0)
        throw ValueError(str(kAttention, ": the number of heads must be a multiple of sp_size: ",
                             q.size(1), " heads, sp_size ", ranks));
    if (k.size(1) % ranks != 0 && ranks % k.size(1) != 0)
        throw ValueError(
            str(kAttention,
                ": the number of key-value heads must be a multiple or a divisor of sp_size: ",
                k.size(1), " heads, sp_size ", ranks));
}

// If there are fewer heads than ranks, repeats each head so that every rank has one. The gradients
// of the copies are added.
Tensor one_head_for_each_rank(const Tensor& x, std::int64_t ranks) {
    if (x.size(1) >= ranks) return x;
    const std::int64_t copies = ranks / x.size(1);
    const Shape each = {x.size(0), x.size(1), copies, x.size(2), x.size(3)};
    return expand(x.unsqueeze(2), each).reshape({x.size(0), ranks, x.size(2), x.size(3)});
}

// Gathers a padding mask [B or 1, 1, 1, T] along the keys. Returns an undefined mask and a mask of
// whole sequences [B or 1, 1, L, L] unchanged. Throws ShapeError for other shapes.
Tensor whole_mask(const Tensor& mask, std::int64_t time,
                  const std::shared_ptr<ProcessGroup>& group) {
    if (!mask.defined()) return {};
    const std::int64_t length = time * group->size();
    if (mask.dim() == 4 && mask.size(1) == 1 && mask.size(2) == length && mask.size(3) == length)
        return mask;
    if (mask.dim() != 4 || mask.size(1) != 1 || mask.size(2) != 1 || mask.size(3) != time)
        throw ShapeError(str(kAttention, ": a mask must be [batch, 1, 1, ", time,
                             "], for this process's part of the keys, or [batch, 1, ", length, ", ",
                             length, "]: mask ", mask.shape()));
    const NoGrad no_grad;
    return all_gather_along(mask, 3, group, GradientKind::same);
}

Tensor part_of(const Tensor& whole, const ProcessGroup& group) {
    const std::int64_t count = whole.size(1) / group.size();
    return whole.narrow(1, group.rank() * count, count).contiguous();
}

// Returns labels shifted by one position, so that each token has the label of the next one. The
// last token has no next one, and gets the label kIgnored.
Tensor shifted(const Tensor& labels) {
    return cat(
        {labels.narrow(1, 1, labels.size(1) - 1), full_like(labels.narrow(1, 0, 1), kIgnored)}, 1);
}

Tree sequence_part(const Tree& batch, const ProcessGroup& group) {
    const NoGrad no_grad;
    Tree whole = batch;
    const Tensor& ids = batch["input_ids"].tensor();
    if (const Tree* const labels = batch.find("labels");
        labels != nullptr && labels->is_tensor() && labels->tensor().dim() >= 2)
        whole.set("shift_labels", shifted(labels->tensor()));
    if (!batch.contains("position_ids")) {
        const Tensor positions = arange(ids.size(1), {.dtype = i64, .device = ids.device()});
        whole.set("position_ids", expand(positions.unsqueeze(0), {ids.size(0), ids.size(1)}));
    }
    Tree part = Tree::map();
    for (const auto& [key, value] : whole.entries())
        part.set(key, value.is_tensor() && value.tensor().dim() >= 2
                          ? Tree(part_of(value.tensor(), group))
                          : value);
    return part;
}

}  // namespace

Tensor Ulysses::attend(const Tensor& query, const Tensor& key, const Tensor& value,
                       const AttentionOptions& options) {
    const profiler::OpScope scope(kAttention);
    const std::int64_t ranks = parts();
    const Tensor q = autocast(query), k = autocast(key), v = autocast(value);
    check_operands(q, k, v, ranks);
    // Attention is computed for whole sequences and this rank's part of the heads of q.
    kernels::WeightGrid grid = whole_grid(q, q.size(2) * ranks);
    grid.first_head += group_->rank() * q.size(1) / ranks;
    const kernels::AttentionParams params = attention_params(options, q.size(0), q.size(3), grid);
    const auto whole_sequences = [&](const Tensor& x) {
        return all_to_all_along(one_head_for_each_rank(x, ranks), 1, 2, group_);
    };
    const Tensor y = attention_to_part(whole_sequences(q), whole_sequences(k), whole_sequences(v),
                                       params, whole_mask(options.mask, q.size(2), group_));
    return all_to_all_along(y, 2, 1, group_);
}

Tensor Ulysses::whole_sequences(const Tensor& x) const {
    const NoGrad no_grad;
    return all_gather_along(x, 1, group_, GradientKind::same);
}

void check_ulysses_batch(const Tree& batch, const ProcessGroup& group) {
    const Tree* const ids = batch.is_map() ? batch.find("input_ids") : nullptr;
    if (ids == nullptr || !ids->is_tensor() || ids->tensor().dim() < 2)
        throw ValueError(str(
            kAdapter, ": a batch must be a map with \"input_ids\" [batch, length, ...]: ", batch));
    const std::int64_t length = ids->tensor().size(1);
    if (length % group.size() != 0)
        throw ValueError(str(kAdapter, ": the length of sequences must be a multiple of sp_size: ",
                             "length ", length, ", sp_size ", group.size()));
    for (const auto& [key, value] : batch.entries())
        if (value.is_tensor() && value.tensor().dim() >= 2 && value.tensor().size(1) != length)
            throw ValueError(str(kAdapter, ": ", in_quotes(key),
                                 " must have the length of 'input_ids', ", length, ": ",
                                 in_quotes(key), " is ", value.tensor().shape()));
}

std::vector<Tree> ulysses_batches(const Tree& batch, ProcessGroup& group) {
    std::vector<Tree> batches = gather_or_throw(group, kAdapter, [&] {
        if (!batch.is_null()) check_ulysses_batch(batch, group);
        return batch;
    });
    for (Tree& each : batches)
        if (!each.is_null()) each = sequence_part(each, group);
    return batches;
}

Tensor mean_over_tokens(const Tensor& loss, const Tensor& tokens,
                        const std::shared_ptr<ProcessGroup>& group) {
    const profiler::OpScope scope("mean_over_tokens");
    check_device("mean_over_tokens", {&loss, &tokens});
    if (loss.numel() != 1 || tokens.numel() != 1)
        throw ShapeError(str("mean_over_tokens: loss and tokens must have one element: loss ",
                             loss.shape(), ", tokens ", tokens.shape()));
    const Tensor weight = tokens.detach().to(loss.dtype()).reshape({1});
    Tensor total;
    {
        const NoGrad no_grad;
        total = weight.clone();
        group->all_reduce(total);
    }
    const Tensor sum = where(gt(weight, 0), loss.reshape({1}) * weight, 0);
    const Tensor sums = all_gather_along(sum, 0, group, GradientKind::partial);
    return axle::sum(sums) / total.reshape({});
}

}  // namespace axle::dist
