// Private to accel: counts micro-batches and decides which of them complete an update.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "accel/config/options.h"
#include "accel/loop/gradient_division.h"
#include "accel/loop/gradient_state.h"
#include "data/loading/loader.h"

namespace axle::accel {

struct AccumulationOptions {
    int num_steps = 1;  // micro-batches per update, at least 1
    bool sync_with_dataloader = true;
    bool sync_each_batch = false;
    ShortWindow short_window = ShortWindow::as_upstream;
};

// The state of gradient accumulation: the position in the current update, the running loops over
// prepared loaders, and the division of gradients. Used by one thread.
class Accumulation {
  public:
    // The counters, which captured steps rewind and checkpoints restore.
    struct Counts {
        std::int64_t step = 0;  // number of micro-batches since the last reset (Accelerator::step)
        std::int64_t opened = 0;  // number of micro-batches since the Accelerator was created
        // Number of micro-batches in the current update; 0 without accumulate().
        std::int64_t window = 0;
        bool sync_gradients = true;
    };

    explicit Accumulation(const AccumulationOptions& options = {}) : options_(options) {}

    const AccumulationOptions& options() const { return options_; }
    void set_options(const AccumulationOptions& options) { options_ = options; }
    void set_num_steps(int steps) { options_.num_steps = steps; }
    const Counts& counts() const { return counts_; }
    void set_counts(const Counts& counts) { counts_ = counts; }
    // Returns whether the latest micro-batch completes an update.
    bool sync_gradients() const { return counts_.sync_gradients; }
    void set_sync_gradients(bool sync) { counts_.sync_gradients = sync; }
    GradientState state() const;
    // Clears the state of the current update and all gradient divisions.
    void reset();
    // Ends an update that lacks micro-batches, but keeps the gradients and their divisions.
    void end_update();

    // Counts a micro-batch and decides whether it completes an update.
    void begin_micro_batch();
    // Returns true if the gradients of the current micro-batch are not averaged over processes.
    bool holds_back() const { return !counts_.sync_gradients && !options_.sync_each_batch; }
    // Returns whether the next micro-batch would complete an update because its batch is the
    // loader's last one.
    bool ends_pass() const;
    // Returns whether the accumulated gradients will be dropped when the running loop ends.
    bool drops_window() const;
    // Returns text that identifies the position of the next micro-batch in its update, because a
    // captured step is valid for one position only. `of_several` is true if the step consists of
    // several micro-batches.
    std::string position_key(bool of_several) const;

    // Called when a loop over a prepared loader begins and ends.
    void begin_pass(data::DataLoader& loader) { active_.push_back(&loader); }
    void end_pass(const data::DataLoader& loader);
    // Removes a loader. The loader may be destroyed already; only its address is used.
    void forget(const data::DataLoader& loader);
    // Returns the loaders of the running loops, the innermost last.
    const std::vector<data::DataLoader*>& active_loaders() const { return active_; }
    // Returns the loader of the innermost running loop, or nullptr.
    data::DataLoader* active_loader() const { return active_.empty() ? nullptr : active_.back(); }

    GradientDivision& division() { return division_; }
    const GradientDivision& division() const { return division_; }

  private:
    bool end_of_dataloader() const;

    AccumulationOptions options_;
    Counts counts_;
    std::vector<data::DataLoader*> active_;
    // The loader of the latest micro-batch, and whether its batch is the loader's last one.
    data::DataLoader* loader_ = nullptr;
    bool is_last_batch_ = false;
    GradientDivision division_;
};

}  // namespace axle::accel
