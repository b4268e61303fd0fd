// PartialState: the rank and device of this process, and functions that are called on some
// processes only. AcceleratorState adds the precision and the plugin of an Accelerator.
//
//     accel::PartialState state;                      // reads the launcher's environment
//     if (state.is_main_process()) download();
//     state.wait_for_everyone();
//     for (auto& prompt : state.split_between_processes(prompts)) answer(prompt);
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/tree/tree.h"
#include "dist/group/process_group.h"

namespace axle::accel {

enum class DistributedType : std::uint8_t {
    no,
    multi_cpu,
    multi_gpu,
    fsdp,
    deepspeed,
    megatron_lm
};
// Returns the name that Accelerate uses: "NO", "MULTI_CPU", "MULTI_GPU", "FSDP", "DEEPSPEED" or
// "MEGATRON_LM".
const char* name_of(DistributedType type);
// The plugin that shards or divides the models of an Accelerator, with the version of FSDP.
enum class ShardingPlugin : std::uint8_t { none, fsdp1, fsdp2, deepspeed, megatron_lm };

struct PartialStateOptions {
    // Whether the device is the CPU. If false, the device is the first of these that applies:
    // ACCELERATE_TORCH_DEVICE, the CPU if ACCELERATE_USE_CPU is true, this process's GPU, the CPU.
    bool cpu = false;
    // Options for creating the process group of the program (InitProcessGroupKwargs). Ignored if
    // the group exists.
    dist::ProcessGroupOptions init_process_group_kwargs = {};
    // The group to use instead of the group of all processes that the launcher has started. Its
    // ranks are also the local ranks, as if all its processes were on one machine.
    std::shared_ptr<dist::ProcessGroup> process_group = {};
};

// Returns the indices of a process's part of `size` inputs. Parts are contiguous, and their sizes
// differ by at most one input; the first processes get the larger parts. With apply_padding the
// last input is repeated, so that all parts have the same size.
std::vector<std::size_t> split_indices(std::size_t size, int process_index, int num_processes,
                                       bool apply_padding);
// Returns a process's part of a list, of a tensor (by its first dimension), or of a map of lists
// and tensors. With one process, returns the input. Throws ValueError if the entries of a map
// differ in length, and for inputs of other types.
Tree split_between_processes(const Tree& inputs, int process_index, int num_processes,
                             bool apply_padding = false);

// A scope that the first process enters and leaves before the other processes enter it. On the
// other processes the constructor blocks until the scope of the first process has ended. There is
// one first process, or one on each machine. The constructor throws the errors of
// ProcessGroup::barrier(); the destructor reports them (core/system/log.h).
class [[nodiscard]] ProcessFirst {
  public:
    ProcessFirst(std::shared_ptr<dist::ProcessGroup> group, bool is_first);
    ~ProcessFirst();
    ProcessFirst(const ProcessFirst&) = delete;
    ProcessFirst& operator=(const ProcessFirst&) = delete;

  private:
    std::shared_ptr<dist::ProcessGroup> group_;
    bool is_first_;
};

// The process group of the program, with the rank and the device of this process. States without
// the option process_group share one group: the first state creates it, and the last one closes it.
// Used by one thread.
class PartialState {
  public:
    // Joins the program's group, and creates it if necessary, unless the option process_group is
    // set. Throws DeviceError if ACCELERATE_TORCH_DEVICE is not cpu, cuda or cuda:<index>, or if
    // this GPU does not exist, and ValueError for an invalid index. Throws ValueError if
    // ACCELERATE_USE_CPU, ACCELERATE_CPU_AFFINITY or ACCELERATE_DEBUG_MODE is not a boolean. Also
    // throws the errors of dist::read_environment() and dist::ProcessGroup::create().
    explicit PartialState(PartialStateOptions options = {});
    // Returns a state of the program's group, or nullopt if no state uses this group.
    static std::optional<PartialState> current();

    int num_processes() const { return environment_.world_size; }
    int process_index() const { return environment_.rank; }
    int local_process_index() const { return environment_.local_rank; }
    bool is_main_process() const { return process_index() == 0; }
    bool is_local_main_process() const { return local_process_index() == 0; }
    bool is_last_process() const { return process_index() == num_processes() - 1; }
    bool use_distributed() const { return num_processes() > 1; }
    DistributedType distributed_type() const;
    Device device() const { return device_; }
    // Returns "tcp", "nccl", "mpi" or "none".
    const std::string& backend() const { return process_group()->backend(); }
    // Returns the value of ACCELERATE_DEBUG_MODE. The variable has no effect, because collectives
    // always check their arguments.
    bool debug() const { return debug_; }
    // Returns whether this object has a group. After destroy_process_group() with several
    // processes, returns false, and process_group() throws UsageError.
    bool has_process_group() const { return group_ != nullptr; }
    const std::shared_ptr<dist::ProcessGroup>& process_group() const;

    // Blocks until all processes have called this function.
    void wait_for_everyone() const { process_group()->barrier(); }
    // Return a scope that the main process enters and leaves before the other processes enter it.
    // With the local variant, the main process of each machine is first.
    ProcessFirst main_process_first() const { return {process_group(), is_main_process()}; }
    ProcessFirst local_main_process_first() const {
        return {process_group(), is_local_main_process()};
    }

    // Call f() on one process (the local variants: on one process of each machine). Return an
    // optional with f's result on that process, and nullopt on the other processes. If f returns
    // void, return whether f was called.
    template <class F>
    auto on_main_process(F&& f) const {
        return run_if(is_main_process(), std::forward<F>(f));
    }
    template <class F>
    auto on_local_main_process(F&& f) const {
        return run_if(is_local_main_process(), std::forward<F>(f));
    }
    template <class F>
    auto on_last_process(F&& f) const {
        return run_if(is_last_process(), std::forward<F>(f));
    }
    template <class F>
    auto on_process(int process_index_, F&& f) const {
        return run_if(process_index() == process_index_, std::forward<F>(f));
    }
    template <class F>
    auto on_local_process(int local_process_index_, F&& f) const {
        return run_if(local_process_index() == local_process_index_, std::forward<F>(f));
    }

    // Returns this process's part of the inputs, as split_indices() divides them.
    template <class T>
    std::vector<T> split_between_processes(const std::vector<T>& inputs,
                                           bool apply_padding = false) const {
        std::vector<T> part;
        for (const std::size_t i :
             split_indices(inputs.size(), process_index(), num_processes(), apply_padding))
            part.push_back(inputs[i]);
        return part;
    }
    Tree split_between_processes(const Tree& inputs, bool apply_padding = false) const {
        return accel::split_between_processes(inputs, process_index(), num_processes(),
                                              apply_padding);
    }

    // Prints the parts as a line to std::cout, once per machine.
    template <class... Parts>
    void print(const Parts&... parts) const {
        if (is_local_main_process()) print_line(str(parts...));
    }

    // Releases the group if there are several processes. Ranks such as process_index() stay
    // available, but collectives throw UsageError. When all owners of the group in this process
    // have released it, this process leaves the group. Collectives in which other processes wait
    // for it then fail.
    void destroy_process_group();

  protected:
    void set_device(Device device) { device_ = device; }

  private:
    template <class F>
    static auto run_if(bool condition, F&& f) {
        using Result = std::invoke_result_t<F>;
        if constexpr (std::is_void_v<Result>) {
            if (condition) f();
            return condition;
        } else {
            return condition ? std::optional<Result>(f()) : std::nullopt;
        }
    }
    static void print_line(const std::string& line);

    dist::Environment environment_;
    std::shared_ptr<dist::ProcessGroup> group_;  // nullptr after destroy_process_group()
    Device device_;
    bool debug_ = false;
};

// The state of an Accelerator: a PartialState with a precision and a plugin.
class AcceleratorState : public PartialState {
  public:
    // All existing states of a thread have the same precision and device. If their precision
    // differs from `mixed_precision`, throws ValueError if `is_explicit`; otherwise uses their
    // precision. If their device differs, throws ValueError if the options or the environment
    // select a device; otherwise uses their device.
    AcceleratorState(const PartialStateOptions& options, std::string mixed_precision,
                     bool is_explicit, ShardingPlugin plugin);

    const std::string& mixed_precision() const { return common_->mixed_precision; }
    // Returns `deepspeed` with a DeepSpeed plugin. On several processes, returns `fsdp` with an
    // FSDP plugin and `megatron_lm` with a MegatronLMPlugin. Otherwise returns the type of the
    // PartialState.
    DistributedType distributed_type() const;
    // Returns whether distributed_type() is `fsdp` and the plugin has version 2.
    bool is_fsdp2() const;

  private:
    // The properties that all existing states of a thread share.
    struct Common {
        std::string mixed_precision;
        Device device;
    };
    // Returns the properties of the existing states. Without existing states, returns the
    // properties of the first state.
    static std::shared_ptr<const Common> common(std::string mixed_precision,
                                                bool is_precision_explicit, Device device,
                                                bool is_device_explicit);

    std::shared_ptr<const Common> common_;
    ShardingPlugin plugin_;
};

// Print the distributed environment, the processes and the device, one property per line. For an
// AcceleratorState, also print the mixed precision.
std::ostream& operator<<(std::ostream& out, const PartialState& state);
std::ostream& operator<<(std::ostream& out, const AcceleratorState& state);

}  // namespace axle::accel

namespace axle {
using accel::PartialState;
}  // namespace axle
