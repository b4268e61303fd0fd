// Private to dist: the reduction of gradients while backward runs.
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

namespace axle::inline v0::dist {

// What the ranks do next while some of them may be out of data; 0 is one that is.
enum class Step : std::uint8_t { none, forward, gather, reduce, sum };

// Asks everybody what they do next: the steps by rank. Throws where they differ.
using Announce = std::function<std::vector<Step>(Step)>;

// One thread at a time runs passes over its parameters; the passes of other threads only look at
// the door.
class Reducer {
  public:
    Reducer(const nn::StateDict& parameters, std::shared_ptr<ProcessGroup> group,
            DataParallelOptions options);
    ~Reducer();
    Reducer(const Reducer&) = delete;
    Reducer& operator=(const Reducer&) = delete;

    // What a pass that begins now does.
    bool syncs = true;
    bool is_local = false;  // gradients are this process's alone, whatever the mode
    // While ranks may have different numbers of batches.
    Announce announce;
    bool divides_by_all = true;

    const std::vector<GradientBucket>& buckets() const { return buckets_; }
    // A rank without data answers one pass of the others with zeros.
    void shadow(Step step);

  private:
    struct Parameter {
        std::string name;
        Tensor tensor;
        std::size_t bucket = 0, place = 0;  // in the bucket
        bool touched = false;               // has a gradient of its own since the last reduction
        // In this pass:
        bool reached = false, ready = false;
        int finals = 0;
        int expected = 0;        // of these, in a static graph
        std::uint64_t when = 0;  // its gradient became final, by a clock of its own
        // Deterministic mode: the gradient from before the window, and what is shown until it ends.
        Tensor base = {}, shown = {};
    };
    // Leaves of any pass are looked up by address, from any thread.
    struct Door {
        std::unordered_map<const axle::Impl*, std::size_t> index;
        std::atomic<std::thread::id> inside{};  // whose pass is under way
        Reducer* reducer;
    };
    struct Pass {
        int depth = 0;          // 0: there is none
        bool reduces = false;   // over the ranks
        bool delivers = false;  // to the parameters' gradients
        bool in_tree = false;   // adds micro-batches in an order that ranks don't change
        bool learns = false;    // what a static graph reaches
        double scale = 1;       // of the mean, where ranks without data don't count
    };
    struct Flight {
        explicit Flight(const std::string& name) : event(name) {}
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
    bool is_over_at_begin(const Parameter& p) const;
    void make_ready(std::size_t index);
    void fill(Parameter& p);
    void start_full_buckets();
    void end();
    void close_parameters();
    void learn_order();
    bool agrees() const;
    void agree(std::vector<bool>& used);
    std::vector<bool> used_somewhere();
    void finish_flights();
    void deliver(const std::vector<bool>& used);
    void deliver(Parameter& p);
    void gather_in_tree(const std::vector<bool>& used);
    void take_gradients();
    void close_window();
    void abandon() noexcept;
    void reset();
    std::string name_some(const std::vector<std::size_t>& which) const;

    DataParallelOptions options_;
    std::shared_ptr<ProcessGroup> group_;
    std::vector<Parameter> parameters_;
    std::vector<Tensor> tensors_;  // of the parameters

    std::vector<GradientBucket> buckets_;
    std::vector<std::size_t> waiting_;  // gradients that each bucket lacks
    std::size_t started_ = 0;
    std::deque<Flight> flights_;
    Pass pass_;

    bool learns_order_ = false;
    bool rebuild_is_due_ = false;
    std::vector<std::size_t> order_;  // in which gradients became final
    std::uint64_t clock_ = 0;
    bool knows_graph_ = false;       // what a static graph reaches here,
    std::vector<bool> static_used_;  // and on any rank

    std::vector<TreeAccumulator> trees_;  // by bucket, while a window is open

    std::shared_ptr<Door> door_;
    std::vector<autograd::HookHandle> hooks_;
};

}  // namespace axle::inline v0::dist
