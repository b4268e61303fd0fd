#include "accel/loop/device_rates.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/launch.h"
#include "core/ops.h"
#include "kernels/ops/step_state.h"

namespace axle::accel {
namespace {

// A scope in which a flag is set.
class Busy {
  public:
    explicit Busy(bool& flag) : flag_(flag), before_(std::exchange(flag, true)) {}
    ~Busy() { flag_ = before_; }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

  private:
    bool& flag_;
    bool before_;
};

}  // namespace

DeviceRates::DeviceRates(optim::Optimizer& optimizer, optim::Scheduler& scheduler, Device device,
                         bool can_skip, std::function<void(optim::Scheduler&)> take_step)
    : optimizer_(optimizer),
      scheduler_(scheduler),
      can_skip_(can_skip),
      take_step_(std::move(take_step)),
      table_(empty({kSteps + 1, static_cast<std::int64_t>(optimizer.group_count()), 2},
                   {.dtype = f64, .device = device})),
      count_(zeros({}, {.dtype = i64, .device = device})) {}

DeviceRates::HostState DeviceRates::host_state() {
    const Busy busy(busy_);
    HostState state = {{}, scheduler_.step_count(), scheduler_.last_epoch()};
    for (std::size_t g = 0; g < optimizer_.group_count(); ++g) {
        const optim::GroupRef group = optimizer_.group(g);
        state.rates.insert(state.rates.end(), {group.lr, group.momentum});
    }
    return state;
}

void DeviceRates::set_rates(const std::vector<double>& rates) {
    for (std::size_t g = 0; g < optimizer_.group_count(); ++g) {
        const optim::GroupRef group = optimizer_.group(g);
        group.lr = rates[2 * g];
        group.momentum = rates[2 * g + 1];
    }
}

void DeviceRates::fill() {
    const Busy busy(busy_);
    left_ = host_state();
    rows_ = left_.rates;
    capacity_ = 0;
    const Tree before = scheduler_.state_dict();
    try {
        while (capacity_ < kSteps) {
            take_step_(scheduler_);
            const std::vector<double> next = host_state().rates;
            rows_.insert(rows_.end(), next.begin(), next.end());
            ++capacity_;
        }
    } catch (const std::exception&) {
        // The schedule has ended within the table, so the table has no further rows.
    }
    scheduler_.load_state_dict(before);
    set_rates(left_.rates);
    const NoGrad no_grad;
    const auto groups = static_cast<std::int64_t>(optimizer_.group_count());
    if (table_.size(1) != groups)
        table_ = empty({kSteps + 1, groups, 2}, {.dtype = f64, .device = count_.device()});
    table_.narrow(0, 0, capacity_ + 1)
        .copy_(Tensor::from_blob(rows_.data(), {capacity_ + 1, groups, 2}, f64));
    count_.zero_();
    possible_ = followed_ = 0;
    filled_ = true;
}

void DeviceRates::begin_capture() { optimizer_.set_rates(table_, count_); }
void DeviceRates::end_capture() { optimizer_.set_rates({}, {}); }

void DeviceRates::count_step() {
    launch(count_.device(), [&](auto& on) {
        const bool skips = can_skip_ && optimizer_.skipped().defined();
        kernels::count_unless(on, skips ? optimizer_.skipped().data<double>() : nullptr,
                              count_.data<std::int64_t>());
    });
}

void DeviceRates::take_steps(std::int64_t steps) {
    if (steps == 0) return;
    const Busy busy(busy_);
    for (std::int64_t i = 0; i < steps; ++i) take_step_(scheduler_);
    followed_ += steps;
    left_ = host_state();
}

void DeviceRates::catch_up() {
    if (busy_ || !filled_ || possible_ == followed_) return;
    possible_ = count_.item_int();
    take_steps(possible_ - followed_);
}

void DeviceRates::settle() {
    catch_up();
    if (std::exchange(changed_options_, false)) optimizer_.push_options(true);
}

// Returns whether the schedule has stepped eagerly after the last replay, and the host's rates are
// the rates in the table for its step count. If so, the program has not changed the rates. Returns
// false while the host has not followed the steps of all replays.
bool DeviceRates::is_in_table(const HostState& now) const {
    const std::int64_t row = followed_ + now.step_count - left_.step_count;
    if (possible_ != followed_ || row <= followed_ || row > capacity_) return false;
    const auto at = rows_.begin() + row * static_cast<std::int64_t>(now.rates.size());
    return std::equal(now.rates.begin(), now.rates.end(), at);
}

// If the schedule has only stepped eagerly, continues in the table after these steps. Otherwise
// applies rates that the program has changed. They are valid until the schedule's next step, and
// affect later steps only if the schedule computes its rates from the current rates.
void DeviceRates::accept_changes(const HostState& now) {
    if (now.rates.size() == left_.rates.size() && is_in_table(now)) {
        followed_ = possible_ = followed_ + now.step_count - left_.step_count;
        count_.fill_(followed_);
        left_ = now;
        return;
    }
    const std::vector<double> before = left_.rates;
    std::vector<double> rates = now.rates;
    std::copy(before.begin(), before.end(), rates.begin());
    set_rates(rates);  // the replayed steps used the previous rates
    catch_up();
    filled_ = false;
    rates = host_state().rates;
    for (std::size_t i = 0; i < before.size(); ++i)
        if (now.rates[i] != before[i]) rates[i] = now.rates[i];
    set_rates(rates);
}

bool DeviceRates::prepare(std::int64_t steps) {
    if (filled_)
        if (const HostState now = host_state(); now != left_) accept_changes(now);
    if (filled_ && possible_ + steps > capacity_) {
        catch_up();
        filled_ = false;
    }
    if (!filled_) fill();
    return steps <= capacity_;
}

void DeviceRates::note_replay(std::int64_t steps) {
    changed_options_ = true;
    possible_ += steps;
    if (!can_skip_) take_steps(steps);
}

}  // namespace axle::accel
