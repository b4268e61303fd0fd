// OptimizerParamScheduler: the schedule of Megatron-LM, which changes the learning rate and the
// weight decay.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "optim/schedules/scheduler.h"

namespace axle::optim {

// The decay of the learning rate after the warmup. The rate is min_lr + c (lr0 - min_lr), where lr0
// is the initial rate of the first group, and c depends on p, which grows from 0 at the end of the
// warmup to 1 at lr_decay_steps.
enum class LrDecay : std::uint8_t {
    constant,  // the rate is lr0, even after lr_decay_steps
    linear,    // c = 1 - p
    cosine,    // c = (1 + cos(pi p)) / 2
    // The rate is lr0 sqrt(max(lr_warmup_steps, 1) / max(step, 1)), but at least min_lr.
    inverse_square_root,
    wsd,  // c = 1 until the last wsd_decay_steps, then WsdDecay
};
// The end of LrDecay::wsd. q grows from 0 to 1 during wsd_decay_steps.
enum class WsdDecay : std::uint8_t {
    linear,       // c = 1 - q
    cosine,       // c = (1 + cos(pi q)) / 2
    exponential,  // c = 2 * 0.5^q - 1
    minus_sqrt,   // c = 1 - sqrt(q)
};
// The growth of the weight decay from start_weight_decay to end_weight_decay. r grows from 0 to 1
// during weight_decay_steps.
enum class WeightDecayIncrease : std::uint8_t {
    constant,  // the two values are equal
    linear,    // in proportion to r
    cosine,    // in proportion to (1 + cos(pi (1 - r))) / 2
};

// Return the value with this name in Megatron-LM, such as "inverse-square-root" or "WSD". Throw
// ValueError for other names.
LrDecay lr_decay_of(std::string_view name);
WsdDecay wsd_decay_of(std::string_view name);
WeightDecayIncrease weight_decay_increase_of(std::string_view name);

struct ParamScheduleOptions {
    // The rate of the first group at the start of the warmup, and its lowest rate after the warmup.
    // The rates of the other groups are in proportion to their initial rates.
    double init_lr = 0, min_lr = 0;
    // The number of warmup steps, in which the rate grows linearly, and the step at which the decay
    // ends. Both can be fractions.
    double lr_warmup_steps = 0, lr_decay_steps = 0;
    LrDecay lr_decay = LrDecay::linear;
    double wsd_decay_steps = 0;
    WsdDecay wsd_decay = WsdDecay::exponential;
    // If unset, the schedule does not change the weight decay. The group with the largest initial
    // weight decay gets the whole value, and each other group a share in proportion to its initial
    // weight decay. If all initial weight decays are 0, all groups get the whole value.
    std::optional<double> start_weight_decay = {}, end_weight_decay = {};
    double weight_decay_steps = 0;
    WeightDecayIncrease weight_decay_increase = WeightDecayIncrease::constant;
    // The number of steps that each step() of the schedule adds, such as the number of samples of
    // an update.
    double increment = 1;
};

// Computes rates and weight decays as the class of the same name in Megatron-LM does. lr0 is the
// initial rate of the first group. After lr_decay_steps the rate is min_lr, except with
// LrDecay::constant, and after weight_decay_steps the weight decay is end_weight_decay. The saved
// state contains the options under their names in Megatron-LM; load_state_dict() replaces them.
class OptimizerParamScheduler : public Scheduler {
  public:
    // Throws ValueError unless init_lr and min_lr are in [0, lr0], 0 <= lr_warmup_steps <
    // lr_decay_steps, increment is positive, both or none of the weight decays are set, 0 <=
    // start_weight_decay <= end_weight_decay (equal if weight_decay_increase is constant), and all
    // these numbers are finite. With LrDecay::wsd, wsd_decay_steps must be in (0, lr_decay_steps].
    // If weight decays are set and weight_decay_increase is not constant, weight_decay_steps must
    // be positive and finite.
    OptimizerParamScheduler(Optimizer& optimizer, const ParamScheduleOptions& options);

    // Returns the number of steps, which is last_epoch() * increment.
    double num_steps() const { return static_cast<double>(last_epoch()) * options_.increment; }
    // Returns false if the weight decay changes.
    bool can_look_ahead() const override;

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;
    std::vector<ScheduleField> fields() override;

  private:
    double rate_at(double step, double max_lr) const;
    double decay_share_at(double step) const;
    double weight_decay_at(double step) const;

    ParamScheduleOptions options_;
    bool sets_weight_decay_ = false;
    double start_weight_decay_ = 0, end_weight_decay_ = 0;
    std::vector<double> weight_decay_shares_;  // one per group
};

}  // namespace axle::optim
