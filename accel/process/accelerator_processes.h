// AcceleratorProcesses: the base class of Accelerator for ranks, barriers and collectives.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "accel/process/checkpoint_request.h"
#include "accel/process/partial_state.h"
#include "core/tree/structure.h"
#include "core/tree/tree.h"
#include "dist/group/operations.h"

namespace axle::accel {

// The processes that train together. With one process, collectives do not communicate. All
// processes must call the same collectives in the same order; if a call fails on one process, it
// throws on all processes. Used by one thread.
class AcceleratorProcesses {
  public:
    AcceleratorProcesses(const AcceleratorProcesses&) = delete;
    AcceleratorProcesses& operator=(const AcceleratorProcesses&) = delete;

    const AcceleratorState& state() const { return state_; }
    // Returns the device of this process, where models and batches are placed.
    Device device() const { return state_.device(); }
    bool is_main_process() const { return state_.is_main_process(); }
    // Returns whether this process has local rank 0.
    bool is_local_main_process() const { return state_.is_local_main_process(); }
    bool is_last_process() const { return state_.is_last_process(); }
    int process_index() const { return state_.process_index(); }
    int local_process_index() const { return state_.local_process_index(); }
    int num_processes() const { return state_.num_processes(); }
    // Returns whether the number of processes is greater than 1.
    bool use_distributed() const { return state_.use_distributed(); }
    DistributedType distributed_type() const { return state_.distributed_type(); }
    // Returns whether an FSDP plugin of version 2 shards the models over several processes.
    bool is_fsdp2() const { return state_.is_fsdp2(); }
    // Returns whether there are several processes with GPUs, and no DeepSpeed, FSDP or Megatron-LM
    // plugin is given.
    bool multi_device() const { return distributed_type() == DistributedType::multi_gpu; }

    // Blocks until all processes have called this function.
    void wait_for_everyone() const { state_.wait_for_everyone(); }
    // Return a scope that the main process enters and leaves before the other processes enter it.
    // With the local variant, the main process of each machine is first.
    ProcessFirst main_process_first() const { return state_.main_process_first(); }
    ProcessFirst local_main_process_first() const { return state_.local_main_process_first(); }
    // Call f() on one process (the local variants: on one process of each machine). Return an
    // optional with f's result on that process, and nullopt on the other processes. If f returns
    // void, return whether f was called.
    template <class F>
    auto on_main_process(F&& f) const {
        return state_.on_main_process(std::forward<F>(f));
    }
    template <class F>
    auto on_local_main_process(F&& f) const {
        return state_.on_local_main_process(std::forward<F>(f));
    }
    template <class F>
    auto on_last_process(F&& f) const {
        return state_.on_last_process(std::forward<F>(f));
    }
    template <class F>
    auto on_process(int process_index, F&& f) const {
        return state_.on_process(process_index, std::forward<F>(f));
    }
    template <class F>
    auto on_local_process(int local_process_index, F&& f) const {
        return state_.on_local_process(local_process_index, std::forward<F>(f));
    }
    // Returns this process's part of a vector, or of a Tree: a list, a tensor (by its first
    // dimension) or a map of these (else ValueError). Parts are contiguous, and their sizes differ
    // by at most one element; the first processes get the larger parts. With apply_padding the last
    // input is repeated, so that all parts have the same size.
    template <class T>
    auto split_between_processes(const T& inputs, bool apply_padding = false) const {
        return state_.split_between_processes(inputs, apply_padding);
    }
    // Prints the parts as a line to std::cout, once per machine.
    template <class... Parts>
    void print(const Parts&... parts) const {
        state_.print(parts...);
    }

    // Collectives on Trees or structures of tensors (dist/group/operations.h); a braced list is
    // converted to a Tree. gather() concatenates the tensors of all processes along their first
    // dimension.
    template <class T = Tree>
    T gather(const T& value) const {
        return dist::gather(*state_.process_group(), value);
    }
    // Returns the element-wise "sum", "mean", "max" or "min" over all processes, times `scale`.
    template <class T = Tree>
    T reduce(const T& value, std::string_view reduction = "sum", double scale = 1) const {
        return dist::reduce(*state_.process_group(), value, reduction, scale);
    }
    // Pads dimension `dim` of each tensor with pad_index to its largest size over all processes.
    // The padding follows the data, or precedes it with pad_first.
    template <class T = Tree>
    T pad_across_processes(const T& value, std::int64_t dim = 0, double pad_index = 0,
                           bool pad_first = false) const {
        return dist::pad_across_processes(*state_.process_group(), value, dim, pad_index,
                                          pad_first);
    }
    // Sets the flag of this process that check_trigger() reads.
    void set_trigger() { triggered_ = true; }
    // Returns whether any process has set its flag, and clears the flags. All processes must call
    // this function.
    bool check_trigger();
    // Returns the strongest request (request_checkpoint()) of any process since the last call, and
    // clears the requests. All processes must call this function, for example after each update.
    CheckpointRequest checkpoint_request() const;

  protected:
    explicit AcceleratorProcesses(AcceleratorState state) : state_(std::move(state)) {}
    ~AcceleratorProcesses() = default;

    void destroy_process_group() { state_.destroy_process_group(); }

  private:
    AcceleratorState state_;
    bool triggered_ = false;
};

}  // namespace axle::accel
