#include "dist/sequence/ring_attention.h"

#include <limits>
#include <utility>

#include "core/attention/attention_part.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"

namespace axle::dist {
namespace {

using kernels::AttentionParams;
using Ranges = std::vector<nn::PositionRange>;

constexpr const char* kRing = "ring_attention";

// A range of rows of a local sequence.
struct Rows {
    std::int64_t first, count;
    Tensor of(const Tensor& x) const { return x.narrow(2, first, count); }
};

// Calls f(query rows, key rows, params) for each pair of a range of queries and a range of keys.
// Skips pairs that a causal mask hides completely.
template <class F>
void for_visible(const Ranges& queries, const Ranges& keys, const AttentionParams& params, F&& f) {
    std::int64_t first_query = 0;
    for (const nn::PositionRange& query : queries) {
        std::int64_t first_key = 0;
        for (const nn::PositionRange& key : keys) {
            const bool is_hidden = params.causal && key.begin >= query.begin + query.count;
            if (!is_hidden) {
                AttentionParams part = params;
                part.causal = params.causal && key.begin + key.count - 1 > query.begin;
                part.causal_offset = query.begin - key.begin;
                part.grid.first_query = query.begin;
                part.grid.first_key = key.begin;
                f(Rows{first_query, query.count}, Rows{first_key, key.count}, part);
            }
            first_key += key.count;
        }
        first_query += query.count;
    }
}

// The exchange of one tensor: sends it to the next rank while receiving the tensor of the previous
// rank.
class Transfer {
  public:
    Transfer(const Tensor& x, ProcessGroup& group, int tag)
        : sent_(x.contiguous()), received_(empty_like(sent_)) {
        const profiler::OpScope scope("ring_transfer");
        check_device("ring_transfer", {&sent_});
        const int ranks = group.size(), rank = group.rank();
        send_ = group.send_async(sent_, (rank + 1) % ranks, tag);
        receive_ = group.recv_async(received_, (rank + ranks - 1) % ranks, tag);
    }
    Tensor wait() {
        receive_.wait();
        send_.wait();
        return received_;
    }

  private:
    Tensor sent_, received_;
    Work send_, receive_;
};

constexpr int kKeysTag = 0, kGradientsTag = 1;

// Calls f(key, value, rank) for the parts of all ranks, beginning with the part of this rank.
template <class F>
void around_ring(const Tensor& k, const Tensor& v, ProcessGroup& group, F&& f) {
    const std::int64_t heads = k.size(1);
    const int ranks = group.size();
    Tensor part = cat({k, v}, 1);
    for (int step = 0; step < ranks; ++step) {
        std::optional<Transfer> transfer;
        if (step + 1 < ranks) transfer.emplace(part, group, kKeysTag);
        f(part.narrow(1, 0, heads), part.narrow(1, heads, heads),
          (group.rank() - step + ranks) % ranks);
        if (transfer) part = transfer->wait();
    }
}

// Combines attention to two disjoint sets of keys. `all` becomes the attention to both sets.
void combine(const AttentionPart& all, const AttentionPart& part) {
    const Tensor top = maximum(all.lse, part.lse);
    const Tensor lse = top + log(exp(all.lse - top) + exp(part.lse - top));
    const auto weighted = [&](const AttentionPart& one) {
        return one.out.to(all.out.dtype()) * exp(one.lse - lse).unsqueeze(-1);
    };
    const Tensor out = weighted(all) + weighted(part);
    Tensor(all.out).copy_(out);
    Tensor(all.lse).copy_(lse);
}

DType sum_dtype(const Tensor& x) { return x.dtype() == f64 ? f64 : f32; }

AttentionPart attend(const Tensor& q, const Tensor& k, const Tensor& v,
                     const AttentionParams& params, const std::vector<Ranges>& positions,
                     ProcessGroup& group) {
    const TensorOptions options{.dtype = sum_dtype(q), .device = q.device()};
    const AttentionPart all{
        .out = zeros(q.shape(), options),
        .lse = full({q.size(0), q.size(1), q.size(2)}, -std::numeric_limits<double>::infinity(),
                    {.dtype = sum_dtype(q), .device = q.device()})};
    const auto own = static_cast<std::size_t>(group.rank());
    around_ring(k, v, group, [&](const Tensor& key, const Tensor& value, int rank) {
        for_visible(positions[own], positions[static_cast<std::size_t>(rank)], params,
                    [&](Rows rows, Rows keys, const AttentionParams& part) {
                        combine({rows.of(all.out), rows.of(all.lse)},
                                attention_part(rows.of(q), keys.of(key), keys.of(value), part));
                    });
    });
    return {all.out.to(q.dtype()), all.lse};
}

AttentionGradients attend_backward(const Tensor& dy, const Tensor& q, const Tensor& k,
                                   const Tensor& v, const AttentionPart& all,
                                   const AttentionParams& params,
                                   const std::vector<Ranges>& positions, ProcessGroup& group) {
    const DType dtype = sum_dtype(q);
    const std::int64_t heads = k.size(1);
    const auto own = static_cast<std::size_t>(group.rank());
    const auto add_to = [](Tensor to, const Tensor& x) { to.add_(x.to(to.dtype())); };
    const TensorOptions options{.dtype = dtype, .device = q.device()};
    const Tensor dq = zeros(q.shape(), options);
    Shape both = k.shape();
    both[1] = 2 * heads;
    std::optional<Transfer> gradients;  // gradients of the part that this rank receives next
    around_ring(k, v, group, [&](const Tensor& key, const Tensor& value, int rank) {
        Tensor sum = zeros(both, options);
        const Tensor dk = sum.narrow(1, 0, heads), dv = sum.narrow(1, heads, heads);
        for_visible(positions[own], positions[static_cast<std::size_t>(rank)], params,
                    [&](Rows rows, Rows keys, const AttentionParams& part) {
                        const AttentionGradients d = attention_part_backward(
                            rows.of(dy), rows.of(q), keys.of(key), keys.of(value),
                            {rows.of(all.out), rows.of(all.lse)}, part);
                        add_to(rows.of(dq), d.q);
                        add_to(keys.of(dk), d.k);
                        add_to(keys.of(dv), d.v);
                    });
        if (gradients) sum = sum + gradients->wait();
        gradients.emplace(sum, group, kGradientsTag);
    });
    const Tensor sum = gradients->wait();  // the gradients of this rank's part
    return {dq.to(q.dtype()), sum.narrow(1, 0, heads).to(k.dtype()),
            sum.narrow(1, heads, heads).to(v.dtype())};
}

}  // namespace

Tensor ring_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                      const AttentionParams& params, const std::vector<Ranges>& positions,
                      const std::shared_ptr<ProcessGroup>& group) {
    const profiler::OpScope scope(kRing);
    check_device(kRing, {&q, &k, &v});
    AttentionPart all;
    {
        const NoGrad no_grad;
        all = attend(q, k, v, params, positions, *group);
    }
    return record(
        kRing, all.out, {q, k, v},
        [q = saved(q), k = saved(k), v = saved(v), y = saved(all.out), lse = saved(all.lse), params,
         positions, group](const Grads& dy, Needs) -> Grads {
            if (grad_enabled()) refuse_double_backward(kRing);
            const AttentionGradients d = attend_backward(
                dy[0], q.get(), k.get(), v.get(), {y.get(), lse.get()}, params, positions, *group);
            return {d.q, d.k, d.v};
        });
}

}  // namespace axle::dist
