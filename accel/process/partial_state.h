// PartialState: who this process is among those that train together, and what they do in turn.
//
//     accel::PartialState state;                      // as the launcher says; alone without one
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

enum class DistributedType : std::uint8_t { no, multi_cpu, multi_gpu };
const char* name_of(DistributedType type);  // "NO", "MULTI_CPU", "MULTI_GPU", as Accelerate

struct PartialStateOptions {
    // Else what ACCELERATE_TORCH_DEVICE names, the CPU where ACCELERATE_USE_CPU says so, or the GPU
    // of this process, where there is one.
    bool cpu = false;
    // Of the group that is made if there is none yet: InitProcessGroupKwargs.
    dist::ProcessGroupOptions init_process_group_kwargs = {};
    // Instead of the group of all processes that the launcher started.
    std::shared_ptr<dist::ProcessGroup> process_group = {};
};

// Which of `size` inputs a process gets: a run of them, as even as can be, the first processes one
// more. With padding everybody gets as many, the last input again where there are too few.
std::vector<std::size_t> split_indices(std::size_t size, int process_index, int num_processes,
                                       bool apply_padding);
// Lists and tensors by their first dimension, maps of such entry by entry: ValueError where these
// have different lengths, and for what has none. One process gets it all.
Tree split_between_processes(const Tree& inputs, int process_index, int num_processes,
                             bool apply_padding = false);

// While it lives, the other processes wait: those that are not first from its construction on until
// the first one's has ended.
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

// All states of a program share one process group, which the first one makes and the last one
// leaves. One thread at a time.
class PartialState {
  public:
    explicit PartialState(PartialStateOptions options = {});
    // That of the group that the program's states share, if there is one now.
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
    // "gloo", "nccl" or "none"
    const std::string& backend() const { return process_group()->backend(); }
    // ACCELERATE_DEBUG_MODE. Collectives check what they are given in any case.
    bool debug() const { return debug_; }
    // false behind destroy_process_group(), where process_group() is a UsageError.
    bool has_process_group() const { return group_ != nullptr; }
    const std::shared_ptr<dist::ProcessGroup>& process_group() const;

    void wait_for_everyone() const { process_group()->barrier(); }
    // A scope that the main process (of all, or of each machine) runs through before the others.
    ProcessFirst main_process_first() const { return {process_group(), is_main_process()}; }
    ProcessFirst local_main_process_first() const {
        return {process_group(), is_local_main_process()};
    }

    // f() on one process, its result there and nothing elsewhere; true and false where f gives
    // none.
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

    // This process's part of the inputs, as above.
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

    // A line on std::cout, once per machine.
    template <class... Parts>
    void print(const Parts&... parts) const {
        if (is_local_main_process()) print_line(str(parts...));
    }

    // Lets go of the group of several processes: from now on nothing that all do together can be
    // done here, while this process still knows which one it is. The last owner leaves the group;
    // others that wait for this process in a collective then fail.
    void destroy_process_group();

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
    std::shared_ptr<dist::ProcessGroup> group_;  // null once it is let go
    Device device_;
    bool debug_ = false;
};

// And what an Accelerator has decided.
class AcceleratorState : public PartialState {
  public:
    // A thread's living states have one precision: that of the first where a later one says
    // nothing (`is_said`), ValueError where it says another.
    AcceleratorState(PartialStateOptions options, std::string mixed_precision, bool is_said);

    const std::string& mixed_precision() const { return *mixed_precision_; }

  private:
    std::shared_ptr<const std::string> mixed_precision_;
};

// A line each: distributed environment, processes, device, and the mixed precision.
std::ostream& operator<<(std::ostream& out, const PartialState& state);
std::ostream& operator<<(std::ostream& out, const AcceleratorState& state);

}  // namespace axle::accel

namespace axle {
using accel::PartialState;
}  // namespace axle
