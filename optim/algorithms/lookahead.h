// Lookahead (Zhang et al., 2019, arXiv:1907.08610): a second set of slow weights, around another
// optimizer.
//
//     optim::Lookahead<optim::AdamW> optimizer(model.parameters(), {.lr = 1e-3}, {.k = 6});
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "optim/optimizer.h"

namespace axle::optim {

struct LookaheadOptions {
    std::int64_t k = 5;  // steps of the inner optimizer between two updates of the slow weights
    double alpha = 0.5;  // the weight of the parameters in the new slow weights

    // Throws ValueError unless k is 1 or more and alpha is in [0, 1].
    void check() const;
};

// The part of Lookahead that does not depend on the inner optimizer.
class SlowWeights {
  public:
    explicit SlowWeights(const LookaheadOptions& options) : options_(options) { options_.check(); }
    // Appends the options and the number of steps since the last update, under the names
    // "lookahead_k", "lookahead_alpha" and "counter".
    void add_named(std::vector<NamedOption>& options);
    // Throws UsageError during a graph capture, whose replays could not count steps.
    static void check_not_capturing();
    // Counts a step. Returns whether it is the k-th step since the last update.
    bool count_step();
    // Sets the slow weights and the parameter to slow + alpha (parameter - slow).
    void update(const Tensor& param, Tensor slow) const;

  private:
    LookaheadOptions options_;
    std::int64_t counter_ = 0;
};

// The optimizer Inner, for example AdamW. Every k-th step also moves the slow weights of each
// parameter with a gradient towards the parameter, slow = slow + alpha (parameter - slow), and
// copies them to the parameter. The first slow weights of a parameter are its values before its
// first step. The saved state of a parameter contains "step", the state of Inner and "slow_params";
// a group contains the options of Inner and of Lookahead. The constructors throw the errors of
// Inner and of LookaheadOptions::check(). Besides the errors of Inner, step() throws UsageError
// during a graph capture. With a GradScaler, a step waits for the device, because a skipped step
// does not count. Parameters can be sharded if Inner supports sharded parameters. LBFGS cannot be
// the inner optimizer.
template <class Inner>
    requires(!requires(Inner& inner) { inner.param_groups()[0].max_iter; })
class Lookahead : public Inner {
  public:
    using Group = typename Inner::Group;
    using InnerOptions = typename Inner::OptionsOfGroup;

    explicit Lookahead(std::vector<Tensor> params, InnerOptions options = {},
                       LookaheadOptions lookahead = {})
        : Inner(std::move(params), std::move(options)), slow_(lookahead) {}
    explicit Lookahead(std::vector<Group> groups, LookaheadOptions lookahead = {})
        : Inner(std::move(groups)), slow_(lookahead) {}

  protected:
    std::vector<NamedOption> options(std::size_t group) override {
        std::vector<NamedOption> all = Inner::options(group);
        slow_.add_named(all);
        return all;
    }
    std::span<const char* const> buffer_names() const override {
        if (names_.empty()) {
            const std::span<const char* const> inner = Inner::buffer_names();
            names_.assign(inner.begin(), inner.end());
            names_.push_back("slow_params");
        }
        return names_;
    }
    bool needs_buffer(std::size_t group, std::size_t buffer) const override {
        return buffer == place() || (buffer < place() && Inner::needs_buffer(group, buffer));
    }
    bool is_number(std::size_t buffer) const override {
        return buffer != place() && Inner::is_number(buffer);
    }
    std::optional<Shape> buffer_shape(const Tensor& param, std::size_t group,
                                      std::size_t buffer) const override {
        return buffer == place() ? param.shape() : Inner::buffer_shape(param, group, buffer);
    }
    DType buffer_dtype(const Tensor& param, std::size_t buffer) const override {
        return buffer == place() ? Optimizer::buffer_dtype(param, buffer)
                                 : Inner::buffer_dtype(param, buffer);
    }
    void fill_buffer(Tensor& buffer, const Tensor& param, std::size_t group,
                     std::size_t index) const override {
        if (index != place()) return Inner::fill_buffer(buffer, param, group, index);
        buffer.copy_(param);
    }
    bool saves_step() const override { return true; }
    void update(Device device, std::span<const kernels::Slot> slots,
                const kernels::StepScalars* scalars) override {
        SlowWeights::check_not_capturing();
        Inner::update(device, slots, scalars);
        if (this->step_was_skipped() || !slow_.count_step()) return;
        for (const Tensor& param : this->copy_back())
            slow_.update(param, this->state(param)->buffers[place()]);
    }

  private:
    std::size_t place() const { return Inner::buffer_names().size(); }

    SlowWeights slow_;
    mutable std::vector<const char*> names_;  // made by the first call of buffer_names()
};

}  // namespace axle::optim
