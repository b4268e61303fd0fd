// A training step for tests of failing allocations, and the state that a failure must not change.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "accel/accelerator.h"
#include "core/autograd/autograd.h"
#include "core/functional.h"
#include "core/ops.h"
#include "core/random.h"
#include "core/tree/tree_utils.h"
#include "nn/layers/attention.h"
#include "nn/layers/conv.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "optim/adam.h"
#include "optim/schedules/schedules.h"

namespace axle::tests {

struct ConvAttentionNet : nn::Model<ConvAttentionNet> {
    nn::Conv2d conv{1, 4, {3, 3}};
    nn::LayerNorm norm{4};
    nn::MultiheadAttention attention{4, 2, {.batch_first = true}};
    nn::Linear out{4, 3};

    // Maps images [N, 1, 6, 6] to logits [N, 3].
    Tensor forward(const Tensor& x) {
        const Tensor pixels = norm(transpose(gelu(conv(x)).reshape({x.size(0), 4, 16}), 1, 2));
        return out(mean(pixels + attention(pixels, pixels, pixels), {1}));
    }
    void visit(nn::Visitor& v) override {
        v("conv", conv), v("norm", norm), v("attention", attention), v("out", out);
    }
};

inline Tree copy_of(const Tree& tree) {
    return map_tensors(tree, [](const Tensor& t) { return Tree(t.detach().clone()); });
}

// Returns the values of all tensors and the text of the tree.
inline std::string text_of_state(const Tree& tree) {
    std::string text = str(tree);
    for_each_tensor(tree, [&](const Tensor& t) {
        for (const double value : t.to_vector()) text += str(' ', value);
    });
    return text;
}

class TrainingStep {
  public:
    enum class Stage : std::uint8_t { gradients, optimizer, schedule, done };

    explicit TrainingStep(const std::string& precision = "no")
        : net((manual_seed(3), ConvAttentionNet())),
          adamw(net.parameters(), {.lr = 0.05}),
          schedule(optim::get_cosine_schedule_with_warmup(adamw, 2, 8)),
          accelerator({.mixed_precision = precision, .cpu = true}),
          x_(randn({2, 1, 6, 6})),
          y_(tensor({0, 2})) {
        accelerator.prepare(net, adamw, schedule);
    }

    void run() {
        stage = Stage::gradients;
        adamw.zero_grad();
        accelerator.backward(cross_entropy(net(x_), y_));
        accelerator.clip_grad_norm_(net.parameters(), 0.1);
        stage = Stage::optimizer;
        adamw.step();
        stage = Stage::schedule;
        schedule.step();
        stage = Stage::done;
    }
    // Completes a step that has failed.
    void repeat() {
        if (stage == Stage::schedule)
            schedule.step();
        else
            run();
    }

    // A copy of everything that a step changes, except gradients.
    struct State {
        std::vector<Tensor> parameters;
        Tree optimizer, schedule;
    };
    State state() {
        State copy{{}, copy_of(adamw.state_dict()), copy_of(schedule.state_dict())};
        for (const Tensor& p : net.parameters()) copy.parameters.push_back(p.detach().clone());
        return copy;
    }
    // Restores a state and removes the gradients.
    void load(const State& state) {
        const NoGrad no_grad;
        adamw.zero_grad();
        std::vector<Tensor> parameters = net.parameters();
        for (std::size_t i = 0; i < parameters.size(); ++i)
            parameters[i].copy_(state.parameters[i]);
        adamw.load_state_dict(state.optimizer);
        schedule.load_state_dict(state.schedule);
    }
    // Returns whether the parameters have the bits of the state.
    bool has_parameters_of(const State& state) {
        const std::vector<Tensor> parameters = net.parameters();
        for (std::size_t i = 0; i < parameters.size(); ++i)
            if (std::memcmp(parameters[i].raw_data(), state.parameters[i].raw_data(),
                            static_cast<std::size_t>(parameters[i].numel()) * sizeof(float)) != 0)
                return false;
        return true;
    }
    bool has_state_of(const State& state) {
        return has_parameters_of(state) &&
               text_of_state(adamw.state_dict()) == text_of_state(state.optimizer) &&
               text_of_state(schedule.state_dict()) == text_of_state(state.schedule);
    }

    Stage stage = Stage::done;
    ConvAttentionNet net;
    optim::AdamW adamw;
    optim::LambdaLR schedule;
    accel::Accelerator accelerator;

  private:
    Tensor x_, y_;
};

}  // namespace axle::tests
