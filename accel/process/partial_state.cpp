#include "accel/process/partial_state.h"

#include <algorithm>
#include <iostream>
#include <mutex>
#include <numeric>

#include "accel/config/environment.h"
#include "core/cuda.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "core/system/log.h"
#include "dist/launch/launch.h"

namespace axle::accel {
namespace {

// The process group of the launcher. The reference is weak, because PartialState objects own the
// group.
struct Shared {
    std::mutex mutex;
    std::weak_ptr<dist::ProcessGroup> group;
};
Shared& shared() {
    static Shared instance;
    return instance;
}

std::shared_ptr<dist::ProcessGroup> shared_group(const dist::Environment& environment,
                                                 const dist::ProcessGroupOptions& options) {
    const std::lock_guard lock(shared().mutex);
    auto group = shared().group.lock();
    if (group) return group;
    if (environment.local_world_size > 1 &&
        flag_variable("ACCELERATE_CPU_AFFINITY").value_or(false))
        dist::bind_to_cores({.local_world_size = environment.local_world_size},
                            environment.local_rank);
    shared().group = group = dist::ProcessGroup::create(environment, options);
    return group;
}

Device own_gpu(int local_rank) { return Device::cuda(local_rank % cuda::device_count()); }

Device named_device(const std::string& name, int local_rank) {
    if (name != "cpu" && name != "cuda" && !name.starts_with("cuda:"))
        throw DeviceError(
            str("ACCELERATE_TORCH_DEVICE: the device must be cpu, cuda or cuda:<index>: '",
                printable(name), "'"));
    const Device device = Device::parse(name);
    return name == "cuda" ? own_gpu(local_rank) : device;
}

Device chosen_device(bool cpu, int local_rank) {
    const bool without_gpu = flag_variable("ACCELERATE_USE_CPU").value_or(false);
    if (cpu) return Device::cpu();
    if (const auto name = text_variable("ACCELERATE_TORCH_DEVICE"))
        return named_device(*name, local_rank);
    return without_gpu || !cuda::is_available() ? Device::cpu() : own_gpu(local_rank);
}

// Returns whether `cpu` or an environment variable selects the device explicitly.
bool names_device(bool cpu) {
    return cpu || text_variable("ACCELERATE_TORCH_DEVICE") ||
           flag_variable("ACCELERATE_USE_CPU").value_or(false);
}

std::int64_t length_of(const Tree& inputs) {
    if (inputs.is_list()) return static_cast<std::int64_t>(inputs.size());
    if (inputs.is_tensor() && inputs.tensor().dim() > 0) return inputs.tensor().size(0);
    throw ValueError(str(
        "split_between_processes: expected a list, a tensor with a first dimension, or a map of "
        "lists and tensors: ",
        inputs));
}

}  // namespace

const char* name_of(DistributedType type) {
    switch (type) {
        case DistributedType::no:
            return "NO";
        case DistributedType::multi_cpu:
            return "MULTI_CPU";
        case DistributedType::multi_gpu:
            return "MULTI_GPU";
        case DistributedType::fsdp:
            return "FSDP";
        case DistributedType::deepspeed:
            return "DEEPSPEED";
        case DistributedType::megatron_lm:
            return "MEGATRON_LM";
    }
    return "?";
}

ProcessFirst::ProcessFirst(std::shared_ptr<dist::ProcessGroup> group, bool is_first)
    : group_(std::move(group)), is_first_(is_first) {
    if (!is_first_) group_->barrier();
}

ProcessFirst::~ProcessFirst() {
    if (!is_first_) return;
    try {
        group_->barrier();
    } catch (...) {
        report_error_noexcept(std::current_exception(), {"main_process_first: "});
    }
}

PartialState::PartialState(PartialStateOptions options) : group_(std::move(options.process_group)) {
    if (group_) {
        environment_.rank = environment_.local_rank = group_->rank();
        environment_.world_size = environment_.local_world_size = group_->size();
    } else {
        environment_ = dist::read_environment();
        group_ = shared_group(environment_, options.init_process_group_kwargs);
        environment_.rank = group_->rank();
        environment_.world_size = group_->size();
    }
    device_ = chosen_device(options.cpu, environment_.local_rank);
    debug_ = flag_variable("ACCELERATE_DEBUG_MODE").value_or(false);
}

AcceleratorState::AcceleratorState(const PartialStateOptions& options, std::string mixed_precision,
                                   bool is_explicit, ShardingPlugin plugin)
    : PartialState(options),
      common_(common(std::move(mixed_precision), is_explicit, device(), names_device(options.cpu))),
      plugin_(plugin) {
    set_device(common_->device);
}

std::shared_ptr<const AcceleratorState::Common> AcceleratorState::common(
    std::string mixed_precision, bool is_precision_explicit, Device device,
    bool is_device_explicit) {
    thread_local std::weak_ptr<const Common> in_use;
    const std::shared_ptr<const Common> existing = in_use.lock();
    if (!existing) {
        auto made = std::make_shared<const Common>(Common{std::move(mixed_precision), device});
        in_use = made;
        return made;
    }
    if (is_precision_explicit && existing->mixed_precision != mixed_precision)
        throw ValueError(str("Accelerator: mixed_precision is '", existing->mixed_precision,
                             "' in an existing Accelerator, and must be the same in the new one: '",
                             mixed_precision, "'; destroy the existing one first"));
    if (is_device_explicit && existing->device != device)
        throw ValueError(str("Accelerator: the device is ", existing->device,
                             " in an existing Accelerator, and must be the same in the new one: ",
                             device, "; destroy the existing one first"));
    return existing;
}

DistributedType AcceleratorState::distributed_type() const {
    if (plugin_ == ShardingPlugin::deepspeed) return DistributedType::deepspeed;
    if (plugin_ == ShardingPlugin::none || !use_distributed())
        return PartialState::distributed_type();
    return plugin_ == ShardingPlugin::megatron_lm ? DistributedType::megatron_lm
                                                  : DistributedType::fsdp;
}

bool AcceleratorState::is_fsdp2() const {
    return plugin_ == ShardingPlugin::fsdp2 && distributed_type() == DistributedType::fsdp;
}

namespace {

std::ostream& print(std::ostream& out, const PartialState& state, DistributedType type) {
    out << "Distributed environment: " << name_of(type);
    if (state.use_distributed() && state.has_process_group())
        out << "  Backend: " << state.backend();
    return out << "\nNum processes: " << state.num_processes()
               << "\nProcess index: " << state.process_index()
               << "\nLocal process index: " << state.local_process_index()
               << "\nDevice: " << state.device() << '\n';
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const PartialState& state) {
    return print(out, state, state.distributed_type());
}

std::ostream& operator<<(std::ostream& out, const AcceleratorState& state) {
    return print(out, state, state.distributed_type())
           << "\nMixed precision type: " << state.mixed_precision() << '\n';
}

std::optional<PartialState> PartialState::current() {
    {
        const std::lock_guard lock(shared().mutex);
        if (shared().group.expired()) return std::nullopt;
    }
    return PartialState();
}

DistributedType PartialState::distributed_type() const {
    if (!use_distributed()) return DistributedType::no;
    return device_.is_cuda() ? DistributedType::multi_gpu : DistributedType::multi_cpu;
}

std::vector<std::size_t> split_indices(std::size_t size, int process_index, int num_processes,
                                       bool apply_padding) {
    const auto processes = static_cast<std::size_t>(num_processes);
    const auto index = static_cast<std::size_t>(process_index);
    const std::size_t each = size / processes, more = size % processes;
    std::vector<std::size_t> part(each + (index < more ? 1 : 0));
    std::iota(part.begin(), part.end(), index * each + std::min(index, more));
    if (apply_padding && size > 0 && part.size() < each + (more > 0 ? 1 : 0))
        part.push_back(size - 1);
    return part;
}

Tree split_between_processes(const Tree& inputs, int process_index, int num_processes,
                             bool apply_padding) {
    if (num_processes == 1) return inputs;
    if (inputs.is_map()) {
        std::optional<std::int64_t> length;
        Tree part = Tree::map();
        for (const auto& [key, value] : inputs.entries()) {
            if (length.value_or(length_of(value)) != length_of(value))
                throw ValueError(
                    str("split_between_processes: the entries of a map must have the same "
                        "length: '",
                        key, "' has length ", length_of(value), ", earlier entries have length ",
                        *length));
            length = length_of(value);
            part.set(key,
                     split_between_processes(value, process_index, num_processes, apply_padding));
        }
        return part;
    }
    const auto chosen = split_indices(static_cast<std::size_t>(length_of(inputs)), process_index,
                                      num_processes, apply_padding);
    if (inputs.is_list()) {
        Tree part = Tree::list();
        for (const std::size_t i : chosen) part.push_back(inputs.elements()[i]);
        return part;
    }
    const std::vector<std::int64_t> rows(chosen.begin(), chosen.end());
    const Tensor& all = inputs.tensor();
    return index_select(all, 0,
                        tensor(rows, {static_cast<std::int64_t>(rows.size())}).to(all.device()));
}

void PartialState::print_line(const std::string& line) { std::cout << line + '\n' << std::flush; }

const std::shared_ptr<dist::ProcessGroup>& PartialState::process_group() const {
    if (!group_)
        throw UsageError(
            "process_group: the group was released by end_training() or destroy_process_group(); "
            "call functions that communicate, such as gather() or save_state(), before that");
    return group_;
}

void PartialState::destroy_process_group() {
    if (use_distributed()) group_ = nullptr;
}

}  // namespace axle::accel
