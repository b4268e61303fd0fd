// Implements the collectives that move tensors without reducing them.
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/ops.h"
#include "dist/group/group.h"
#include "dist/group/process_group.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

Shape with_ranks(int ranks, const Shape& shape) {
    Shape all = shape;
    all.insert(0, ranks);
    return all;
}

// The number of counts that describe a shape: the number of dimensions, and kMaxDims sizes.
constexpr std::size_t kShapeCounts = 1 + kMaxDims;

void add_shape(std::vector<std::int64_t>& counts, const Shape& shape) {
    counts.push_back(shape.size());
    for (int d = 0; d < kMaxDims; ++d) counts.push_back(d < shape.size() ? shape[d] : 0);
}

Shape shape_in(const char* op, const std::vector<std::int64_t>& counts, std::size_t at) {
    if (counts.size() < at + kShapeCounts)
        throw CommError(str(op, ": the description of another rank's tensor must have at least ",
                            at + kShapeCounts, " numbers: it has ", counts.size()));
    if (counts[at] < 0 || counts[at] > kMaxDims)
        throw CommError(str(op, ": the tensor of another rank must have 0 to ", kMaxDims,
                            " dimensions: it has ", counts[at]));
    return Shape(std::span(counts).subspan(at + 1, static_cast<std::size_t>(counts[at])));
}

Tensor whole_on_host(const Shape& shape, DType dtype) {
    return Tensor::empty(shape, {.dtype = dtype});
}

// Splits `all` into consecutive parts on `device`; part i has rows[i] rows.
std::vector<Tensor> split_rows(const Tensor& all, const std::vector<std::int64_t>& rows,
                               Device device) {
    std::vector<Tensor> parts;
    std::int64_t begin = 0;
    for (const std::int64_t count : rows) {
        parts.push_back(all.narrow(0, begin, count).to(device));
        begin += count;
    }
    return parts;
}

}  // namespace

Tensor ProcessGroup::all_gather(const Tensor& x) {
    check_tensor("all_gather", x);
    const Tensor out =
        Tensor::empty(with_ranks(size(), x.shape()), {.dtype = x.dtype(), .device = x.device()});
    all_gather_into_async(out, x).wait();
    return out;
}

Work ProcessGroup::all_gather_into_async(const Tensor& out, const Tensor& x) {
    check_tensor("all_gather", x);
    check_same("all_gather", out, x, "out", "x");
    check_in_place("all_gather", out);
    if (out.numel() != x.numel() * size())
        throw ShapeError(str("all_gather: out must have ", size(),
                             " times as many elements as x: x ", x.shape(), ", out ", out.shape()));
    const CollectiveCall call{.op = Collective::all_gather, .dtype = x.dtype(), .numel = x.numel()};
    const Device device = impl_->staging_device("all_gather", x);
    const Staged from = Staged::with_values(x, device), to = Staged::to_fill(out, device);
    if (impl_->alone()) {
        Staged{out.detach(), from.host.view(out.shape())}.copy_back();
        return {};
    }
    return impl_->start_on(
        device, call,
        [&](DeviceEngine& engine) {
            const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()), x.numel());
            return engine.all_gather(to.host, from.host, counts);
        },
        [from, to](HostEngine& engine, const Counts& counts) {
            const std::vector<std::int64_t> bytes(counts.size(), from.bytes());
            engine.all_gather(to.data(), from.data(), bytes);
        },
        [to] { to.copy_back(); });
}

std::vector<Tensor> ProcessGroup::all_gather_uneven(const Tensor& x) {
    check_tensor("all_gather_uneven", x);
    if (x.dim() == 0)
        throw ShapeError(
            str("all_gather_uneven: x must have at least one dimension: x is ", x.shape()));
    if (impl_->alone()) return {x.detach().clone()};
    CollectiveCall call{.op = Collective::all_gather_uneven, .dtype = x.dtype()};
    add_shape(call.counts, x.shape());
    const Staged from = Staged::with_values(x);
    std::vector<std::int64_t> rows;
    Tensor all;
    impl_
        ->start(std::move(call),
                [&](const Counts& counts) {
                    std::vector<std::int64_t> bytes;
                    std::int64_t all_rows = 0;
                    for (std::size_t i = 0; i < counts.size(); ++i) {
                        const Shape shape = shape_in("all_gather_uneven", counts[i], 0);
                        if (shape.empty() ||
                            without_first_dimension(shape) != without_first_dimension(x.shape()))
                            throw CommError(
                                str("all_gather_uneven: shapes differ beyond the first "
                                    "dimension: rank ",
                                    i, " has ", shape, ", rank ", rank(), " has ", x.shape()));
                        bytes.push_back(axle::numel(shape) * size_of(x.dtype()));
                        rows.push_back(shape[0]);
                        all_rows += shape[0];
                    }
                    Shape shape = x.shape();
                    shape[0] = all_rows;
                    all = whole_on_host(shape, x.dtype());
                    impl_->engine().all_gather(all.raw_data(), from.data(), bytes);
                })
        .wait();
    return split_rows(all, rows, x.device());
}

Tensor ProcessGroup::all_to_all(const Tensor& x) {
    check_tensor("all_to_all", x);
    check_first_dimension("all_to_all", x, size());
    if (impl_->alone()) return x.detach().clone();
    const CollectiveCall call{.op = Collective::all_to_all, .dtype = x.dtype(), .numel = x.numel()};
    const Device device = impl_->staging_device("all_to_all", x);
    const Staged from = Staged::with_values(x, device);
    const Tensor out = Tensor::empty(x.shape(), {.dtype = x.dtype(), .device = device});
    const auto equal_parts = [&](std::int64_t whole) {
        return std::vector<std::int64_t>(static_cast<std::size_t>(size()), whole / size());
    };
    impl_
        ->start_on(
            device, call,
            [&](DeviceEngine& engine) {
                const auto counts = equal_parts(x.numel());
                return engine.all_to_all(out, counts, from.host, counts);
            },
            [&](HostEngine& engine, const Counts&) {
                const auto bytes = equal_parts(from.bytes());
                engine.all_to_all(out.raw_data(), bytes, from.data(), bytes);
            })
        .wait();
    return out.to(x.device());
}

std::vector<Tensor> ProcessGroup::all_to_all_uneven(const std::vector<Tensor>& sends) {
    constexpr const char* kOp = "all_to_all_uneven";
    if (static_cast<int>(sends.size()) != size())
        throw ValueError(str(kOp, ": expected one tensor for each of ", size(), " processes, not ",
                             sends.size()));
    const Tensor& first = sends.front();
    for (std::size_t i = 0; i < sends.size(); ++i) {
        const Tensor& x = sends[i];
        const std::string name = "tensor " + std::to_string(i);
        check_tensor(kOp, x, name);
        check_same(kOp, x, first, name, "tensor 0");
        if (x.dim() == 0 || first.dim() == 0 ||
            without_first_dimension(x.shape()) != without_first_dimension(first.shape()))
            throw ShapeError(str(kOp,
                                 ": tensors must have at least one dimension, and their shapes may "
                                 "differ only in the first dimension: tensor 0 is ",
                                 first.shape(), ", tensor ", i, " is ", x.shape()));
    }
    if (impl_->alone()) return {first.detach().clone()};

    std::vector<Tensor> runs;
    CollectiveCall call{.op = Collective::all_to_all_uneven, .dtype = first.dtype()};
    add_shape(call.counts, first.shape());
    call.counts[1] = 0;
    std::vector<std::int64_t> in_bytes;
    for (const Tensor& x : sends) {
        runs.push_back(x.detach());
        call.counts.push_back(x.size(0));
        in_bytes.push_back(x.numel() * size_of(x.dtype()));
    }
    const Staged from = Staged::with_values(cat(runs, 0));
    std::vector<std::int64_t> rows;
    Tensor all;
    impl_
        ->start(std::move(call),
                [&](const Counts& counts) {
                    std::vector<std::int64_t> bytes;
                    Shape shape = first.shape();
                    shape[0] = 0;
                    for (std::size_t i = 0; i < counts.size(); ++i) {
                        if (shape_in(kOp, counts[i], 0) != shape)
                            throw CommError(
                                str(kOp, ": shapes of rows differ: rank ", i, " has ",
                                    without_first_dimension(shape_in(kOp, counts[i], 0)), ", rank ",
                                    rank(), " has ", without_first_dimension(shape)));
                        rows.push_back(counts[i][kShapeCounts + static_cast<std::size_t>(rank())]);
                    }
                    for (const std::int64_t count : rows) {
                        Shape part = shape;
                        part[0] = count;
                        bytes.push_back(axle::numel(part) * size_of(first.dtype()));
                        shape[0] += count;
                    }
                    all = whole_on_host(shape, first.dtype());
                    impl_->engine().all_to_all(all.raw_data(), bytes, from.data(), in_bytes);
                })
        .wait();
    return split_rows(all, rows, first.device());
}

Tensor ProcessGroup::gather(const Tensor& x, int root) {
    check_tensor("gather", x);
    check_rank("gather", "root", root, size());
    const Shape whole = with_ranks(size(), x.shape());
    if (impl_->alone()) return x.detach().clone().reshape(whole);
    const CollectiveCall call{
        .op = Collective::gather, .dtype = x.dtype(), .numel = x.numel(), .root = root};
    const Device device = impl_->staging_device("gather", x);
    const Staged from = Staged::with_values(x, device);
    Tensor out;
    if (rank() == root) out = Tensor::empty(whole, {.dtype = x.dtype(), .device = device});
    impl_
        ->start_on(
            device, call, [&](DeviceEngine& engine) { return engine.gather(out, from.host, root); },
            [&](HostEngine& engine, const Counts& counts) {
                const std::vector<std::int64_t> bytes(counts.size(), from.bytes());
                engine.gather(out.defined() ? out.raw_data() : nullptr, from.data(), bytes, root);
            })
        .wait();
    return out.defined() ? out.to(x.device()) : out;
}

Tensor ProcessGroup::scatter(const Tensor& x, int root) {
    check_rank("scatter", "root", root, size());
    const bool is_root = rank() == root;
    CollectiveCall call{.op = Collective::scatter, .root = root};
    call.counts.resize(1 + kShapeCounts);
    Staged from;
    if (is_root) {
        check_tensor("scatter", x);
        check_first_dimension("scatter", x, size());
        if (impl_->alone()) return x.detach().clone().reshape(without_first_dimension(x.shape()));
        from = Staged::with_values(x);
        call.counts = {static_cast<std::int64_t>(x.dtype())};
        add_shape(call.counts, without_first_dimension(x.shape()));
    }
    Tensor part;
    impl_
        ->start(
            std::move(call),
            [&](const Counts& counts) {
                const auto& descriptions = counts[static_cast<std::size_t>(root)];
                const Shape shape = shape_in("scatter", descriptions, 1);
                if (descriptions[0] < 0 || descriptions[0] > static_cast<std::int64_t>(DType::c64))
                    throw CommError(
                        str("scatter: the dtype from the root must be a number from 0 to ",
                            static_cast<int>(DType::c64), ": ", descriptions[0]));
                part = whole_on_host(shape, static_cast<DType>(descriptions[0]));
                const std::vector<std::int64_t> bytes(counts.size(),
                                                      part.numel() * size_of(part.dtype()));
                impl_->engine().scatter(part.raw_data(), is_root ? from.data() : nullptr, bytes,
                                        root);
            })
        .wait();
    return is_root ? part.to(x.device()) : part;
}

}  // namespace axle::dist
