// Implements ProcessGroup::Impl for collectives on GPU tensors with a GPU engine.
#include <utility>

#include "core/cuda/graph.h"
#include "dist/group/group.h"
#include "kernels/error.h"

namespace axle::dist {

std::string ProcessGroup::Impl::negotiate_nccl_backend() {
#if AXLE_CUDA
    if (alone() || job->device() < 0) return "not asked for";
    const NcclNegotiation invitation =
        negotiate_nccl(job->control(), name(), rank, size(), job->device(), job->timeout());
    if (!invitation.error.empty()) return invitation.error;
    nccl_token_ = invitation.token;
    backend = "nccl";
    return {};
#else
    return "this build of Axle has no CUDA support";
#endif
}

Device ProcessGroup::Impl::staging_device(const char* op, const Tensor& x) const {
    if (nccl_token_.empty() || !x.device().is_cuda()) return Device::cpu();
    if (is_capturing())
        throw UsageError(str(op,
                             ": collectives cannot be captured in a graph; call them outside of "
                             "the captured function"));
    if (x.device().index != job->device())
        throw DeviceError(str(op, ": the tensor is on ", x.device(), ", but this process has ",
                              Device::cuda(job->device()), "; move the tensor to that GPU"));
    return x.device();
}

Work ProcessGroup::Impl::start_on(Device device, CollectiveCall call,
                                  const std::function<DeviceEngine::Started(DeviceEngine&)>& on_gpu,
                                  std::function<void(HostEngine&, const Counts&)> on_host,
                                  std::function<void()> finish) {
    if (device.is_cuda()) return start_on_gpu(std::move(call), on_gpu, std::move(finish));
    return start(
        std::move(call),
        [this, on_host = std::move(on_host)](const Counts& counts) { on_host(engine(), counts); },
        std::move(finish));
}

DeviceEngine& ProcessGroup::Impl::device_engine() {
    const std::lock_guard lock(engine_mutex_);
#if AXLE_CUDA
    if (device_engine_ == nullptr) {
        device_engine_ = open_nccl(job->control(), name(), rank, size(), job->device(),
                                   job->timeout(), nccl_token_);
        job->add(device_engine_.get(), [engine = device_engine_.get()] { engine->abort(); });
    }
#endif
    return *device_engine_;
}

// Queues a collective on the GPU. A worker thread waits for the agreement of all ranks. If the
// engine requires the agreement before the call, this function also waits for it, and throws if the
// calls of the ranks differ. Otherwise a difference aborts the queued collective.
Work ProcessGroup::Impl::start_on_gpu(
    CollectiveCall call, const std::function<DeviceEngine::Started(DeviceEngine&)>& queue,
    std::function<void()> finish) {
    const auto state = std::make_shared<Work::State>(), agreement = std::make_shared<Work::State>();
    state->finish = std::move(finish);
    const std::lock_guard lock(sequence_mutex_);
    call.group = id;
    call.sequence = sequence_ + 1;
    call.on_gpu = true;
    const std::string activity = str(name_of(call.op), " #", call.sequence);
    auto task = [this, agreement, activity, sequence = call.sequence] {
        agreement->complete(attempt(activity, [&] {
            Control& control = job->control();
            control.note(activity);
            control.wait_for_agreement(id, sequence);
            control.note("");
        }));
    };
    job->control().start_call(call, [&] {
        post(std::move(task));
        ++sequence_;
    });
    const std::exception_ptr error = attempt(activity, [&] {
        DeviceEngine& engine = device_engine();
        if (engine.waits_for_agreement()) Work(agreement).wait();
        state->on_gpu = queue(engine);
    });
    if (error) std::rethrow_exception(error);
    return Work(state);
}

}  // namespace axle::dist
