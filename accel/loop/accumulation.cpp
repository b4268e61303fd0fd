#include "accel/loop/accumulation.h"

#include "kernels/error.h"

namespace axle::accel {

GradientState Accumulation::state() const {
    GradientState result{.sync_gradients = counts_.sync_gradients,
                         .num_steps = options_.num_steps,
                         .sync_with_dataloader = options_.sync_with_dataloader,
                         .active_dataloader = active_loader()};
    if (!result.in_dataloader()) return result;
    result.end_of_dataloader = result.active_dataloader->end_of_dataloader();
    result.remainder = result.active_dataloader->remainder();
    return result;
}

void Accumulation::reset() {
    division_.clear();
    counts_.step = 0;
    counts_.window = 0;
    counts_.sync_gradients = true;
}

void Accumulation::end_update() {
    if (counts_.sync_gradients) return;
    counts_.step = counts_.window = 0;
    counts_.sync_gradients = true;
}

bool Accumulation::end_of_dataloader() const {
    return !active_.empty() && active_.back()->end_of_dataloader();
}

bool Accumulation::ends_pass() const {
    const ShortWindow short_window = options_.short_window;
    const bool updates =
        short_window == ShortWindow::as_upstream || short_window == ShortWindow::actual;
    return options_.sync_with_dataloader && updates && end_of_dataloader();
}

void Accumulation::begin_micro_batch() {
    ++counts_.opened;
    if (counts_.sync_gradients) {
        counts_.window = 0;
        division_.begin_window();
    }
    ++counts_.window;
    loader_ = active_loader();
    is_last_batch_ = end_of_dataloader();
    counts_.step = ends_pass() ? 0 : counts_.step + 1;
    counts_.sync_gradients = counts_.step % options_.num_steps == 0;
    if (options_.short_window == ShortWindow::actual)
        division_.set_share(static_cast<double>(counts_.window) / options_.num_steps);
}

bool Accumulation::drops_window() const {
    return options_.short_window == ShortWindow::drop && is_last_batch_ && !counts_.sync_gradients;
}

void Accumulation::end_pass(const data::DataLoader& loader) {
    std::erase(active_, &loader);
    if (options_.short_window != ShortWindow::drop || !is_last_batch_ || loader_ != &loader) return;
    if (!counts_.sync_gradients) division_.discard();
    division_.begin_window();
    counts_.step = counts_.window = 0;
    is_last_batch_ = false;
}

void Accumulation::forget(const data::DataLoader& loader) {
    std::erase(active_, &loader);
    if (loader_ == &loader) loader_ = nullptr;
}

std::string Accumulation::position_key(bool of_several) const {
    const bool last = ends_pass();
    const bool completes = last || (counts_.step + 1) % options_.num_steps == 0;
    std::string key = str(options_.num_steps, completes, counts_.sync_gradients);
    // With ShortWindow::actual, a captured graph contains the divisor of its window, so the key
    // contains the number of micro-batches that the window has so far.
    if (options_.short_window == ShortWindow::actual)
        key += str(" window ", counts_.sync_gradients ? 0 : counts_.window);
    if (of_several) key += str(" at ", last ? -1 : counts_.step % options_.num_steps);
    return key;
}

}  // namespace axle::accel
