#include "dist/parallel/buckets.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/ops.h"

namespace axle::dist {
namespace {

// The dtype and device of a tensor. Tensors of the same kind can share a buffer.
struct BucketKind {
    DType dtype;
    Device device;
    bool operator==(const BucketKind&) const = default;
};

std::size_t bytes_of(const Tensor& t, DType dtype) {
    return static_cast<std::size_t>(t.numel()) * size_of(dtype);
}

// A group of tensors while cut() fills it. `last` is the position of the group's last tensor in
// `order`.
struct Run {
    BucketKind kind;
    bool is_first = true;
    std::vector<std::size_t> members = {};
    std::size_t bytes = 0, last = 0;
};

// Divides tensors, in the given order, into groups of one kind. A group is full when it has at
// least `limit` bytes; the first group of each kind is full at `first_limit` bytes. Groups are
// sorted by the position of their last tensor.
template <class KindOf, class BytesOf>
std::vector<std::vector<std::size_t>> cut(const std::vector<std::size_t>& order, KindOf kind_of,
                                          BytesOf size, std::size_t first_limit,
                                          std::size_t limit) {
    std::vector<Run> open, closed;
    for (std::size_t at = 0; at < order.size(); ++at) {
        const BucketKind kind = kind_of(order[at]);
        auto run = std::find_if(open.begin(), open.end(),
                                [&](const Run& candidate) { return candidate.kind == kind; });
        if (run == open.end()) run = open.insert(open.end(), Run{kind});
        run->members.push_back(order[at]);
        run->bytes += size(order[at]);
        run->last = at;
        if (run->bytes < (run->is_first ? first_limit : limit)) continue;
        closed.push_back(std::exchange(*run, Run{.kind = kind, .is_first = false}));
    }
    for (Run& run : open)
        if (!run.members.empty()) closed.push_back(std::move(run));
    std::sort(closed.begin(), closed.end(),
              [](const Run& a, const Run& b) { return a.last < b.last; });
    std::vector<std::vector<std::size_t>> result;
    result.reserve(closed.size());
    for (Run& run : closed) result.push_back(std::move(run.members));
    return result;
}

std::vector<Tensor> chosen(const std::vector<Tensor>& from, const std::vector<std::size_t>& which) {
    std::vector<Tensor> result;
    result.reserve(which.size());
    for (const std::size_t i : which) result.push_back(from[i]);
    return result;
}

// Divides the tensors into messages of at least 64 MiB, except the last message of each dtype and
// device, and returns the detached tensors of each message. Returns no messages for a group of one
// process.
std::vector<std::vector<Tensor>> messages(const ProcessGroup& group,
                                          const std::vector<Tensor>& tensors) {
    constexpr std::size_t kBytes = std::size_t{64} << 20;
    if (group.size() == 1) return {};
    std::vector<std::size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), 0);
    std::vector<std::vector<Tensor>> result;
    for (const std::vector<std::size_t>& run : cut(
             order,
             [&](std::size_t i) {
                 return BucketKind{tensors[i].dtype(), tensors[i].device()};
             },
             [&](std::size_t i) { return bytes_of(tensors[i], tensors[i].dtype()); }, kBytes,
             kBytes)) {
        result.push_back(chosen(tensors, run));
        for (Tensor& t : result.back()) t = t.detach();
    }
    return result;
}

}  // namespace

DType gradient_dtype(const Tensor& parameter) {
    return is_half(parameter.dtype()) ? f32 : parameter.dtype();
}

std::vector<std::vector<std::size_t>> plan_buckets(const std::vector<Tensor>& parameters,
                                                   const std::vector<std::size_t>& order,
                                                   std::size_t first_bytes, std::size_t bytes) {
    return cut(
        order,
        [&](std::size_t p) {
            return BucketKind{gradient_dtype(parameters[p]), parameters[p].device()};
        },
        [&](std::size_t p) { return bytes_of(parameters[p], gradient_dtype(parameters[p])); },
        std::min(first_bytes, bytes), bytes);
}

std::vector<Tensor> views_in(const Tensor& flat, const std::vector<Tensor>& shapes) {
    std::vector<Tensor> result;
    std::int64_t start = 0;
    for (const Tensor& t : shapes) {
        result.push_back(view(narrow(flat, 0, start, t.numel()), t.shape()));
        start += t.numel();
    }
    return result;
}

std::vector<GradientBucket> make_buckets(const std::vector<Tensor>& parameters,
                                         const std::vector<std::vector<std::size_t>>& plan) {
    std::vector<GradientBucket> result;
    for (const std::vector<std::size_t>& members : plan) {
        GradientBucket bucket;
        bucket.index = result.size();
        bucket.is_last = bucket.index + 1 == plan.size();
        bucket.parameters = chosen(parameters, members);
        std::int64_t numel = 0;
        for (const Tensor& p : bucket.parameters) numel += p.numel();
        const Tensor& one = bucket.parameters.front();
        bucket.buffer = zeros({numel}, {.dtype = gradient_dtype(one), .device = one.device()});
        bucket.gradients = views_in(bucket.buffer, bucket.parameters);
        result.push_back(std::move(bucket));
    }
    return result;
}

GradientBucket make_zero_bucket(const GradientBucket& bucket) {
    GradientBucket zero = bucket;
    zero.buffer = zeros_like(bucket.buffer);
    zero.gradients = views_in(zero.buffer, zero.parameters);
    return zero;
}

bool is_alias(const Tensor& a, const Tensor& b) {
    return a.is_same(b) ||
           (a.impl()->storage == b.impl()->storage && a.impl()->offset == b.impl()->offset &&
            a.dtype() == b.dtype() && a.shape() == b.shape() && a.strides() == b.strides());
}

void broadcast_together(ProcessGroup& group, const std::vector<Tensor>& tensors, int root) {
    const NoGrad no_grad;
    for (const std::vector<Tensor>& members : messages(group, tensors)) {
        std::vector<Tensor> flats;
        flats.reserve(members.size());
        for (const Tensor& t : members) flats.push_back(flatten(t));
        const Tensor flat = cat(flats);
        group.broadcast(flat, root);
        if (group.rank() == root) continue;
        const std::vector<Tensor> values = views_in(flat, members);
        for (std::size_t i = 0; i < members.size(); ++i) members[i].detach().copy_(values[i]);
    }
}

void average_together(ProcessGroup& group, const std::vector<Tensor>& tensors) {
    const NoGrad no_grad;
    for (const std::vector<Tensor>& members : messages(group, tensors))
        group.all_reduce(members, ReduceOp::mean);
}

}  // namespace axle::dist
