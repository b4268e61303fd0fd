// Private to dist: reduces gradients while backward runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/profiler/profiler.h"
#include "dist/group/tree_accumulator.h"
#include "dist/parallel/data_parallel.h"

namespace axle::dist {

// The next step of a rank, while some ranks may be out of data; `none` means that the rank has no
// more data.
enum class Step : std::uint8_t { none, forward, gather, reduce, sum };

// Exchanges the next step with all ranks and returns the steps by rank. Throws if they differ.
using Announce = std::function<std::vector<Step>(Step)>;

// Reduces the gradients of one model. Only one thread at a time may run a backward pass over its
// parameters; passes of other threads only look up leaves in the shared index.
class Reducer {
  public:
    Reducer(const nn::StateDict& parameters, std::shared_ptr<ProcessGroup> group,
            DataParallelOptions options);
    ~Reducer();
    Reducer(const Reducer&) = delete;
    Reducer& operator=(const Reducer&) = delete;

    // Settings of passes that start from now on.
    bool syncs = true;
    bool is_local = false;  // never reduces, regardless of the mode
    // Set while ranks may have different numbers of batches.
    Announce announce;
    bool divides_by_all = true;

    const std::vector<GradientBucket>& buckets() const { return buckets_; }
    // Takes part in one pass of the other ranks with zeros, on a rank without data.
    void shadow(Step step);

  private:
    struct Parameter {
        std::string name;
        Tensor tensor;
        std::size_t bucket = 0, place = 0;  // index in the bucket
        bool touched = false;               // got a gradient since the last reduction
        // State of the current pass:
        bool reached = false, ready = false;
        int finals = 0;
        int expected = 0;        // value of finals at the end of a pass, in a static graph
        std::uint64_t when = 0;  // logical time at which its gradient became final
        // Deterministic mode: the gradient before the accumulation window, and the one visible
        // until the window ends.
        Tensor before_window = {}, visible = {};
    };
    // Finds the parameter of a leaf by its address, for passes of any thread.
    struct HookState {
        std::unordered_map<const axle::Impl*, std::size_t> index;
        std::atomic<std::thread::id> inside{};  // the thread whose pass is running
        Reducer* reducer;
    };
    struct Pass {
        int depth = 0;          // 0 if no pass is running
        bool reduces = false;   // reduces gradients over the ranks
        bool delivers = false;  // writes the parameters' gradients
        bool in_tree = false;   // sums micro-batches in an order independent of the number of ranks
        bool records = false;   // records which parameters a static graph reaches
        double scale = 1;       // factor of the mean, if ranks without data don't count
    };
    struct PendingReduction {
        explicit PendingReduction(const std::string& name) : event(name) {}
        profiler::Communication event;
        CommHook::Pending pending;
    };

    void install(const std::vector<std::size_t>& order);
    void rebuild_if_due();

    void on_begin(const std::vector<Tensor>& leaves);
    void on_final(std::size_t index);
    void on_end();

    void begin(const std::vector<std::size_t>& reached, int depth);
    void begin_inner(const std::vector<std::size_t>& reached);
    bool is_final_at_begin(const Parameter& p) const;
    void make_ready(std::size_t index);
    void copy_to_bucket(Parameter& p);
    void start_full_buckets();
    void end();
    void close_parameters();
    void record_order();
    bool must_exchange_used() const;
    void exchange_used(std::vector<bool>& used);
    std::vector<bool> used_somewhere();
    void finish_reductions();
    void deliver(const std::vector<bool>& used);
    void deliver(Parameter& p);
    void gather_in_tree(const std::vector<bool>& used);
    void detach_gradients();
    void close_window();
    void cancel() noexcept;
    void reset();
    std::string name_some(const std::vector<std::size_t>& which) const;

    DataParallelOptions options_;
    std::shared_ptr<ProcessGroup> group_;
    std::vector<Parameter> parameters_;
    std::vector<Tensor> tensors_;  // the tensors of parameters_

    std::vector<GradientBucket> buckets_;
    std::vector<std::size_t> waiting_;  // gradients that each bucket still needs
    std::size_t started_ = 0;
    std::deque<PendingReduction> reductions_;
    Pass pass_;

    bool records_order_ = false;
    bool rebuild_is_due_ = false;
    std::vector<std::size_t> order_;  // the order in which gradients became final
    std::uint64_t clock_ = 0;
    bool graph_is_known_ = false;    // this rank has recorded its parameters of a static graph
    std::vector<bool> static_used_;  // the static graph's parameters that any rank reaches

    std::vector<TreeAccumulator> trees_;  // by bucket, while an accumulation window is open

    std::shared_ptr<HookState> hook_state_;
    std::vector<autograd::HookHandle> hooks_;
};

}  // namespace axle::dist
