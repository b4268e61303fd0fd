#include "dist/group/process_group.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/cuda.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "dist/group/group.h"
#include "dist/group/reduce.h"
#include "dist/mpi/library.h"
#include "dist/mpi/mpi_job.h"
#include "kernels/error.h"
#include "kernels/shared_library.h"

namespace axle::dist {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTimeout = std::chrono::minutes(30);
constexpr Milliseconds kJoinTimeout = std::chrono::minutes(5);

milliseconds timeout_of_environment() {
    const std::optional<std::string> text = process_variable("AXLE_TIMEOUT_S");
    if (!text) return kTimeout;
    double seconds = 0;
    const char* const end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, seconds);
    const bool is_number = error == std::errc() && stop == end;
    if (!is_number || !(seconds > 0) || seconds > 1e9)
        throw ValueError(
            str("AXLE_TIMEOUT_S: must be above 0 and at most 1e9 seconds: ", in_quotes(*text)));
    return milliseconds(std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds * 1000)));
}

// Returns whether the backend is TCP. PyTorch's name of the CPU backend, "gloo", also selects TCP.
bool is_tcp(const std::string& backend) { return backend == "tcp" || backend == "gloo"; }

void check_backend(const std::string& backend) {
    if (backend.empty() || is_tcp(backend) || backend == "mpi") return;
    if (backend != "nccl")
        throw ValueError(
            str("ProcessGroup: unknown backend ", in_quotes(backend), ": use tcp, mpi or nccl"));
#if !AXLE_CUDA
    throw ValueError("ProcessGroup: this build of Axle has no NCCL support; use tcp or mpi");
#endif
}

// Returns the index of this process's GPU for NCCL, or -1 if the backend does not use NCCL. The
// index is the local rank modulo the number of visible GPUs, or 0 without GPUs.
int device_of(const Environment& environment, const std::string& backend) {
    if (is_tcp(backend) || backend == "mpi") return -1;
    return environment.local_rank % std::max(1, cuda::device_count());
}

}  // namespace

ProcessGroup::ProcessGroup(OwningPtr<Impl> impl) : impl_(std::move(impl)) {}
ProcessGroup::~ProcessGroup() = default;

int ProcessGroup::rank() const { return impl_->rank; }
int ProcessGroup::size() const { return impl_->size(); }
const std::string& ProcessGroup::backend() const { return impl_->backend; }
const std::vector<int>& ProcessGroup::global_ranks() const { return impl_->global_ranks; }

std::shared_ptr<ProcessGroup> ProcessGroup::alone() {
    return std::make_shared<ProcessGroup>(make_owning<Impl>());
}

std::shared_ptr<ProcessGroup> ProcessGroup::create(const Environment& environment,
                                                   ProcessGroupOptions options) {
    if (options.backend.empty()) options.backend = process_variable("AXLE_BACKEND").value_or("");
    check_backend(options.backend);
    if (options.timeout.count() <= 0) options.timeout = timeout_of_environment();
    if (options.join_timeout.count() <= 0)
        options.join_timeout = std::min(options.timeout, kJoinTimeout);
    if (environment.world_size == 1) return alone();

    auto control = Control::join(
        environment, {options.timeout, options.join_timeout, options.heartbeat_timeout});
    std::vector<int> ranks(static_cast<std::size_t>(control->size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    control->open_group(0, ranks);
    const int rank = control->rank();
    auto job = std::make_shared<Job>(std::move(control), options.timeout,
                                     device_of(environment, options.backend));
    if (options.backend == "mpi") {
        const auto open = [] { return open_mpi_library(kernels::own_library_folders()); };
        job->set_mpi(
            std::make_shared<MpiJob>(join_mpi(job->control(), options.join_timeout, open)));
    }
    auto impl = make_owning<Impl>(std::move(job), 0, std::move(ranks), rank);
    const std::string error = impl->negotiate_nccl_backend();
    if (options.backend == "nccl" && !error.empty())
        throw CommError(str("ProcessGroup: NCCL cannot be used: ", error));
    impl->open_mpi_engine();
    return std::make_shared<ProcessGroup>(std::move(impl));
}

Work ProcessGroup::all_reduce_async(const Tensor& x, ReduceOp op) {
    check_tensor("all_reduce", x);
    check_in_place("all_reduce", x);
    check_reducible("all_reduce", x.dtype(), op);
    if (impl_->alone()) return {};
    const CollectiveCall call{
        .op = Collective::all_reduce, .dtype = x.dtype(), .numel = x.numel(), .reduce_op = op};
    const Device device = impl_->staging_device("all_reduce", x);
    const Staged own = Staged::with_values(x, device);
    return impl_->start_on(
        device, call, [&](DeviceEngine& engine) { return engine.all_reduce(own.host, op); },
        [own, op](HostEngine& engine, const Counts&) {
            engine.all_reduce(own.data(), own.host.numel(), own.host.dtype(), op);
        },
        [own] { own.copy_back(); });
}

void ProcessGroup::all_reduce(const std::vector<Tensor>& xs, ReduceOp op) {
    if (xs.empty()) return;
    std::vector<Tensor> runs;
    for (std::size_t i = 0; i < xs.size(); ++i) {
        const Tensor& x = xs[i];
        const std::string name = "tensor " + std::to_string(i);
        check_tensor("all_reduce", x, name);
        check_in_place("all_reduce", x);
        check_same("all_reduce", x, xs.front(), name, "tensor 0");
        runs.push_back(x.detach().reshape({-1}));
    }
    check_reducible("all_reduce", xs.front().dtype(), op);
    if (impl_->alone()) return;
    const Tensor flat = cat(runs, 0);
    all_reduce(flat, op);
    std::int64_t begin = 0;
    for (const Tensor& x : xs) {
        const Tensor part = flat.narrow(0, begin, x.numel()).view(x.shape());
        Staged{x.detach(), part}.copy_back();
        begin += x.numel();
    }
}

Work ProcessGroup::broadcast_async(const Tensor& x, int root) {
    check_tensor("broadcast", x);
    check_in_place("broadcast", x);
    check_rank("broadcast", "root", root, size());
    if (impl_->alone()) return {};
    const bool is_root = rank() == root;
    const CollectiveCall call{
        .op = Collective::broadcast, .dtype = x.dtype(), .numel = x.numel(), .root = root};
    const Device device = impl_->staging_device("broadcast", x);
    const Staged own = is_root ? Staged::with_values(x, device) : Staged::to_fill(x, device);
    return impl_->start_on(
        device, call, [&](DeviceEngine& engine) { return engine.broadcast(own.host, root); },
        [own, root](HostEngine& engine, const Counts&) {
            engine.broadcast(own.data(), own.bytes(), root);
        },
        [own, is_root] {
            if (!is_root) own.copy_back();
        });
}

// On the host, reduce() calls all_reduce, because a reduction to the root alone would send the same
// amount of data to the root.
void ProcessGroup::reduce(const Tensor& x, int root, ReduceOp op) {
    check_tensor("reduce", x);
    check_in_place("reduce", x);
    check_reducible("reduce", x.dtype(), op);
    check_rank("reduce", "root", root, size());
    if (impl_->alone()) return;
    const CollectiveCall call{.op = Collective::reduce,
                              .dtype = x.dtype(),
                              .numel = x.numel(),
                              .root = root,
                              .reduce_op = op};
    const Device device = impl_->staging_device("reduce", x);
    const Staged own = Staged::with_values(x, device);
    impl_
        ->start_on(
            device, call, [&](DeviceEngine& engine) { return engine.reduce(own.host, op, root); },
            [&](HostEngine& engine, const Counts&) {
                engine.all_reduce(own.data(), own.host.numel(), own.host.dtype(), op);
            },
            [own] { own.copy_back(); })
        .wait();
}

Tensor ProcessGroup::reduce_scatter(const Tensor& x, ReduceOp op) {
    check_tensor("reduce_scatter", x);
    check_first_dimension("reduce_scatter", x, size());
    const Tensor out = Tensor::empty(without_first_dimension(x.shape()),
                                     {.dtype = x.dtype(), .device = x.device()});
    reduce_scatter_into_async(out, x, op).wait();
    return out;
}

Work ProcessGroup::reduce_scatter_into_async(const Tensor& out, const Tensor& x, ReduceOp op) {
    check_tensor("reduce_scatter", x);
    check_same("reduce_scatter", out, x, "out", "x");
    check_in_place("reduce_scatter", out);
    check_reducible("reduce_scatter", x.dtype(), op);
    if (x.numel() != out.numel() * size())
        throw ShapeError(str("reduce_scatter: x must have ", size(),
                             " times as many elements as out: x ", x.shape(), ", out ",
                             out.shape()));
    const CollectiveCall call{.op = Collective::reduce_scatter,
                              .dtype = x.dtype(),
                              .numel = out.numel(),
                              .reduce_op = op};
    const Device device = impl_->staging_device("reduce_scatter", x);
    const Staged from = Staged::with_values(x, device), to = Staged::to_fill(out, device);
    if (impl_->alone()) {
        Staged{out.detach(), from.host.view(out.shape())}.copy_back();
        return {};
    }
    return impl_->start_on(
        device, call,
        [&](DeviceEngine& engine) { return engine.reduce_scatter(to.host, from.host, op); },
        [from, to, op](HostEngine& engine, const Counts&) {
            engine.reduce_scatter(to.data(), from.data(), to.host.numel(), to.host.dtype(), op);
        },
        [to] { to.copy_back(); });
}

void ProcessGroup::barrier() {
    if (!impl_->alone()) impl_->start({.op = Collective::barrier}, [](const Counts&) {}).wait();
}

void ProcessGroup::set_leave_reason(const std::string& why) {
    if (!impl_->alone()) impl_->job->control().set_leave_reason(why);
}

void ProcessGroup::set_missing_reason(const std::string& why) {
    if (!impl_->alone()) impl_->job->control().set_missing_reason(why);
}

}  // namespace axle::dist
