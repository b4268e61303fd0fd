#include "dist/sequence/context_parallel.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/attention/attention_part.h"
#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "dist/ops/collective_ops.h"
#include "dist/sequence/ring_attention.h"
#include "dist/sequence/self_attention.h"

namespace axle::dist {
namespace {

constexpr const char* kAttention = "context parallel attention";

using Ranges = std::vector<nn::PositionRange>;

void check_operands(const Tensor& q, const Tensor& k, const Tensor& v,
                    const AttentionOptions& options) {
    check_self_attention(kAttention, q, k, v);
    if (options.mask.defined() && !options.causal)
        throw UsageError(str(kAttention, ": masks are supported in causal attention only: mask ",
                             options.mask.shape(), "; leave out attention_mask"));
}

// Returns x ordered by position. x consists of the parts of whole sequences, gathered in rank order
// along `dim`. Each part has `time` tokens.
Tensor by_position(const Tensor& x, std::int64_t dim, std::int64_t time, int ranks) {
    std::vector<std::pair<std::int64_t, Tensor>> chunks;
    for (int rank = 0; rank < ranks; ++rank) {
        std::int64_t first = rank * time;
        for (const nn::PositionRange& range : head_tail_positions(ranks * time, rank, ranks)) {
            chunks.emplace_back(range.begin, x.narrow(dim, first, range.count));
            first += range.count;
        }
    }
    std::ranges::sort(chunks, {}, [](const auto& chunk) { return chunk.first; });
    std::vector<Tensor> parts;
    for (const auto& [begin, chunk] : chunks) parts.push_back(chunk);
    return cat(parts, dim);
}

bool is_of_whole_sequences(const Tensor& mask, std::int64_t length) {
    return mask.defined() && mask.dim() == 4 && mask.size(2) == length && mask.size(3) == length;
}

// Gathers keys and values, and computes the attention of each range of queries to them. `mask` is
// [B or 1, 1, L, L] for whole sequences, or undefined.
Tensor gathered_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                          const kernels::AttentionParams& params, const Ranges& ranges,
                          const std::shared_ptr<ProcessGroup>& group) {
    const std::int64_t heads = k.size(1);
    const Tensor both =
        by_position(all_gather_along(cat({k, v}, 1), 2, group, GradientKind::partial), 2, k.size(2),
                    group->size());
    std::vector<Tensor> parts;
    std::int64_t first = 0;
    for (const nn::PositionRange& range : ranges) {
        kernels::AttentionParams part = params;
        part.causal_offset = part.grid.first_query = range.begin;
        const std::int64_t keys = params.causal ? range.begin + range.count : both.size(2);
        const Tensor seen = both.narrow(2, 0, keys);
        const Tensor own_mask =
            mask.defined() ? mask.narrow(2, range.begin, range.count).narrow(3, 0, keys) : mask;
        parts.push_back(attention_to_part(q.narrow(2, first, range.count), seen.narrow(1, 0, heads),
                                          seen.narrow(1, heads, heads), part, own_mask));
        first += range.count;
    }
    return cat(parts, 2);
}

// Makes `buffer`, with all tensors that share its Impl, use the storage of `source`, with its shape
// and strides. The old storage is not modified.
void assign(const Tensor& buffer, const Tensor& source) {
    Impl& to = *buffer.impl();
    const Impl& from = *source.impl();
    to.storage = from.storage;
    to.shape = from.shape;
    to.strides = from.strides;
    to.offset = from.offset;
    to.derived = {};
}

Tensor part_of(const Tensor& whole, std::int64_t dim, const ProcessGroup& group,
               const std::string& name) {
    std::vector<Tensor> parts;
    for (const auto& [begin, count] :
         head_tail_positions(whole.size(dim), group.rank(), group.size(), name.c_str()))
        parts.push_back(whole.narrow(dim, begin, count));
    return cat(parts, dim);
}

bool contains(const std::vector<Tensor>& list, const Tensor& tensor) {
    return std::ranges::any_of(list, [&](const Tensor& t) { return t.impl() == tensor.impl(); });
}

}  // namespace

ContextExchange context_exchange_of(std::string_view name) {
    if (name == "allgather") return ContextExchange::all_gather;
    if (name == "alltoall") return ContextExchange::ring;
    throw ValueError(
        str("cp_comm_strategy: must be allgather or alltoall: ", in_quotes(std::string(name))));
}

Ranges head_tail_positions(std::int64_t length, int rank, int ranks, const char* name) {
    const std::int64_t chunk = length / (2 * ranks);
    if (chunk * 2 * ranks != length)
        throw ValueError(str(name, " must be a multiple of ", 2 * ranks,
                             ", twice the number of processes: ", length));
    return {{rank * chunk, chunk}, {(2 * ranks - 1 - rank) * chunk, chunk}};
}

ContextParallel::ContextParallel(std::shared_ptr<ProcessGroup> group, ContextExchange exchange)
    : group_(std::move(group)), exchange_(exchange) {}

Ranges ContextParallel::positions(std::int64_t time) const {
    return head_tail_positions(time * parts(), group_->rank(), group_->size());
}

Tensor ContextParallel::attend(const Tensor& query, const Tensor& key, const Tensor& value,
                               const AttentionOptions& options) {
    const profiler::OpScope scope(kAttention);
    const Tensor q = autocast(query), k = autocast(key), v = autocast(value);
    check_operands(q, k, v, options);
    const std::int64_t time = q.size(2), length = time * parts();
    const kernels::AttentionParams params =
        attention_params(options, q.size(0), q.size(3), whole_grid(q, length));
    const Tensor mask = is_of_whole_sequences(options.mask, length) ? options.mask : Tensor();
    if (exchange_ == ContextExchange::all_gather || parts() == 1)
        return gathered_attention(q, k, v, mask, params, positions(time), group_);
    if (mask.defined())
        throw UsageError(str(kAttention,
                             ": the ring (cp_comm_strategy alltoall) can't separate the documents "
                             "of a sequence: mask ",
                             mask.shape(), "; use allgather"));
    std::vector<Ranges> all;
    for (int rank = 0; rank < group_->size(); ++rank)
        all.push_back(head_tail_positions(length, rank, group_->size()));
    return ring_attention(q, k, v, params, all, group_);
}

Tensor ContextParallel::whole_sequences(const Tensor& x) const {
    const NoGrad no_grad;
    return by_position(all_gather_along(x, 1, group_, GradientKind::same), 1, x.size(1), parts());
}

ContextParallelScope::ContextParallelScope(std::shared_ptr<ContextParallel> policy,
                                           const std::vector<Tensor>& buffers,
                                           const std::vector<std::int64_t>& buffer_seq_dims,
                                           const std::vector<Tensor>& no_restore_buffers) {
    constexpr const char* kWho = "maybe_context_parallel";
    if (buffers.size() != buffer_seq_dims.size())
        throw ValueError(
            str(kWho, ": buffers and buffer_seq_dims must have the same length: ", "buffers ",
                buffers.size(), ", buffer_seq_dims ", buffer_seq_dims.size()));
    if (nn::sequence_policy() != nullptr)
        throw UsageError(str(kWho, ": sequences are already divided; leave the other scope first"));
    for (std::size_t i = 0; i < no_restore_buffers.size(); ++i)
        if (!contains(buffers, no_restore_buffers[i]))
            throw ValueError(
                str(kWho, ": no_restore_buffers has a tensor that is not in buffers: tensor ", i));
    const NoGrad no_grad;
    std::vector<Tensor> parts;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        if (!buffers[i].defined()) throw UsageError(str(kWho, ": buffer ", i, " is undefined"));
        if (buffers[i].requires_grad())
            throw UsageError(str(kWho, ": buffer ", i, " requires a gradient; detach it"));
        parts.push_back(part_of(
            buffers[i], buffer_seq_dims[i], *policy->group(),
            str(kWho, ": the length of buffer ", i, " along dimension ", buffer_seq_dims[i])));
    }
    saved_.reserve(buffers.size());
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        if (!contains(no_restore_buffers, buffers[i]))
            saved_.push_back({buffers[i], buffers[i].detach()});
        assign(buffers[i], parts[i]);
    }
    context_.emplace(std::move(policy));
}

ContextParallelScope::~ContextParallelScope() {
    for (auto saved = saved_.rbegin(); saved != saved_.rend(); ++saved)
        assign(saved->buffer, saved->whole);
}

}  // namespace axle::dist
