// Private to dist: reduces gradients while backward runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/profiler/profiler.h"
#include "dist/group/tree_accumulator.h"
#include "dist/parallel/data_parallel.h"

namespace axle::dist {

// The next step of a rank while ranks may have different numbers of batches. `none` means that the
// rank has no more data.
enum class Step : std::uint8_t { none, forward, gather, reduce, sum };

// A function that exchanges the next step with all ranks and returns the steps, indexed by rank.
// Throws UsageError if the steps of ranks with data differ, or for
// Join::Options::throw_on_early_termination.
using Announce = std::function<std::vector<Step>(Step)>;

// Reduces the gradients of one model. Only one thread at a time may run a backward pass that
// reaches the model's parameters. Passes of other threads may run, and only look up leaves in
// HookState.
class Reducer {
  public:
    Reducer(const nn::StateDict& parameters, std::shared_ptr<ProcessGroup> group,
            DataParallelOptions options);
    ~Reducer();
    Reducer(const Reducer&) = delete;
    Reducer& operator=(const Reducer&) = delete;

    // Settings of later backward passes.
    bool syncs = true;
    bool is_local = false;  // if true, no pass reduces gradients
    // A function that is set while ranks may have different numbers of batches.
    Announce announce;
    bool divides_by_all = true;  // whether the mean counts ranks without data

    const std::vector<GradientBucket>& buckets() const { return buckets_; }
    CommHook& hook() const { return *options_.hook; }
    // Returns the names of the parameters of each bucket. If the next pass rebuilds the buckets,
    // also returns the order of the parameters in the new buckets.
    Tree layout() const;
    // Restores a layout between two passes. Returns false if the layout has other parameters
    // (nothing is restored), or if the options divide the parameters into other buckets (only the
    // order of the parameters is restored).
    bool set_layout(const Tree& layout);
    // Called on a rank without data to take part in one pass of the other ranks with zeros.
    void shadow(Step step);

  private:
    struct Parameter {
        std::string name;
        Tensor tensor;
        std::size_t bucket = 0, place = 0;  // index of the bucket, and index in the bucket
        bool touched = false;               // whether there was a gradient since the last reduction
        // State of the current pass: whether its graph reaches the parameter, and whether the final
        // gradient is in its bucket.
        bool reached = false, ready = false;
        int finals = 0;          // how often the gradient became final in the current pass
        int expected = 0;        // value of `finals` after a pass over a static graph
        std::uint64_t when = 0;  // logical time at which the gradient became final
        // In deterministic mode: the gradient before the current window, and the gradient in the
        // parameter's `grad` until the window ends.
        Tensor before_window = {}, visible = {};
    };
    // The state shared with hooks, which are called for backward passes of all threads. `index`
    // maps the address of a leaf to the index of its parameter.
    struct HookState {
        std::unordered_map<const axle::Impl*, std::size_t> index;
        std::atomic<std::thread::id> inside{};  // the thread that runs a backward pass
        Reducer* reducer;
    };
    struct Pass {
        int depth = 0;          // nesting depth of the pass; 0: no pass is running
        bool reduces = false;   // whether the pass reduces gradients over the ranks
        bool delivers = false;  // whether the pass completes the parameters' gradients
        // Whether micro-batches are summed in an order that does not depend on the number of ranks.
        bool in_tree = false;
        bool records = false;  // whether the pass records the parameters of a static graph
        double scale = 1;      // factor of the mean if ranks without data are not counted
    };
    struct PendingReduction {
        explicit PendingReduction(const std::string& name) : event(name) {}
        profiler::Communication event;
        CommHook::Pending pending;
    };

    void install(const std::vector<std::size_t>& order);
    bool can_rebuild() const { return options_.static_graph || !options_.find_unused_parameters; }
    void rebuild_if_due();
    std::vector<std::size_t> current_order() const;
    Tree names_of(const std::vector<std::size_t>& order) const;
    std::optional<std::vector<std::size_t>> order_from(const std::vector<std::string>& names) const;

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
    std::vector<std::size_t> waiting_;  // number of gradients that each bucket still needs
    std::size_t started_ = 0;
    std::deque<PendingReduction> reductions_;
    Pass pass_;

    bool records_order_ = false;
    bool rebuild_is_due_ = false;
    std::vector<std::size_t> order_;  // the order in which gradients became final
    std::uint64_t clock_ = 0;
    bool graph_is_known_ = false;    // whether the parameters of a static graph are recorded
    std::vector<bool> static_used_;  // parameters that the static graph of any rank reaches

    std::vector<TreeAccumulator> trees_;  // one per bucket within a window

    std::shared_ptr<HookState> hook_state_;
    std::vector<autograd::HookHandle> hooks_;
};

}  // namespace axle::dist
