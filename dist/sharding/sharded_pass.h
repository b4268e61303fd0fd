// Private to dist: decides when the units of a sharded model are gathered, freed and reduced.
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
#include "dist/sharding/flat_parameter.h"
#include "dist/sharding/shard_plan.h"

namespace axle::dist {

// Runs the forward and backward passes of one sharded model. Only one thread at a time may use the
// model.
class ShardedPass : public GatherObserver {
  public:
    ShardedPass(const ShardPlan& plan, std::shared_ptr<ProcessGroup> group,
                ShardingOptions options);
    ~ShardedPass() override;
    ShardedPass(const ShardedPass&) = delete;
    ShardedPass& operator=(const ShardedPass&) = delete;

    bool syncs = true;  // whether later backward passes reduce gradients

    ShardingContext& context() { return context_; }
    const ShardingOptions& options() const { return options_; }
    // Frees all gathered parameters.
    void reshard() noexcept;

    // Called before and after each call of a module of the unit. `is_last` is true for the last
    // module of the unit.
    void enter(std::size_t unit);
    void leave(std::size_t unit, bool is_last) noexcept;

    void gathered_on_use(FlatParameter& parameters) override;
    void unshard() override;

  private:
    struct Unit {
        bool reshards_after_forward = true;
        int active = 0;  // number of active calls of the unit's modules
        std::vector<std::unique_ptr<FlatParameter>> buffers;

        bool is_trained() const;
        bool is_gathered() const;  // whether a buffer is gathered or being gathered
        bool is_sharded() const;   // whether a buffer is neither gathered nor being gathered
        void start_gather() const;
        void free() const noexcept;
    };
    struct Leaf {
        std::size_t unit, buffer, member;
    };
    // The state shared with hooks, which are called for backward passes of all threads. `leaves`
    // maps the address of a trained parameter to its place.
    struct HookState {
        std::unordered_map<const axle::Impl*, Leaf> leaves;
        std::atomic<std::thread::id> inside{};  // the thread that runs a backward pass
        ShardedPass* owner = nullptr;
    };
    // The units of a pass in the order of their use. The order of the last pass predicts the order
    // of the next pass.
    struct Order {
        std::vector<std::size_t> now, last;

        void add(std::size_t unit);
        void finish();
        // Returns the unit that followed `unit` in the last pass, or `none` if there was none.
        std::size_t after(std::size_t unit) const;
    };
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    static std::vector<nn::Module*> modules_without_memory(const PlannedUnit& planned);
    void initialize(const Unit& unit, const std::vector<nn::Module*>& modules) const;
    void add_hooks();
    bool frees_after_forward(const Unit& unit) const;
    bool is_kept(const Unit& unit) const;
    std::size_t count_extra() const;
    void prefetch(std::size_t unit);
    void free_leftovers();

    void on_begin(const std::vector<Tensor>& leaves);
    void on_final(const Leaf& leaf);
    void on_end();
    void reduce(FlatParameter& buffer);
    void finish_oldest();
    void average_ignored();
    void finish_unit(std::size_t unit);
    void cancel() noexcept;

    ShardingOptions options_;
    ShardingContext context_;
    std::vector<Unit> units_;
    std::unordered_map<const FlatParameter*, std::size_t> unit_of_;
    std::vector<Tensor> ignored_;  // trained parameters of ignored modules
    Order forward_, backward_;
    int depth_ = 0;         // backward_depth() of the current pass; 0: no pass is running
    bool reduces_ = false;  // whether the current pass reduces gradients
    std::deque<FlatParameter*> reducing_;
    std::vector<std::size_t>
        used_frozen_;  // units without trained parameters, gathered in backward

    std::shared_ptr<HookState> hook_state_;
    std::vector<autograd::HookHandle> hooks_;
};

}  // namespace axle::dist
