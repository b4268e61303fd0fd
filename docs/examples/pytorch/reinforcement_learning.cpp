// Trains an actor and a critic to balance a pole on a cart. The program of the same name in
// pytorch/examples uses the cart of Gymnasium; this program contains its equations of motion.
#include <cmath>
#include <iostream>
#include <vector>

#include <axle/axle.h>

using axle::Tensor;
namespace nn = axle::nn;

// A pole on a cart that moves without friction (Barto, Sutton and Anderson, IEEE Transactions on
// Systems, Man and Cybernetics, 1983). Units are meters, kilograms, seconds and radians.
class CartPole {
  public:
    CartPole() {
        const std::vector<double> start = (axle::rand({4}) * 0.1 - 0.05).to_vector();
        x_ = start[0], speed_ = start[1], angle_ = start[2], turn_ = start[3];
    }
    Tensor state() const { return axle::tensor({x_, speed_, angle_, turn_}).to(axle::f32); }
    // Pushes the cart to the left (0) or to the right (1) for 20 ms. Returns whether the pole still
    // stands and the cart is still on its track.
    bool step(std::int64_t action) {
        constexpr double kGravity = 9.8, kCart = 1, kPole = 0.1, kHalf = 0.5, kSeconds = 0.02;
        const double force = action == 1 ? 10 : -10, total = kCart + kPole;
        const double sine = std::sin(angle_), cosine = std::cos(angle_);
        const double push = (force + kPole * kHalf * turn_ * turn_ * sine) / total;
        const double angular = (kGravity * sine - cosine * push) /
                               (kHalf * (4.0 / 3 - kPole * cosine * cosine / total));
        const double linear = push - kPole * kHalf * angular * cosine / total;
        x_ += kSeconds * speed_, speed_ += kSeconds * linear;
        angle_ += kSeconds * turn_, turn_ += kSeconds * angular;
        return std::abs(x_) < 2.4 && std::abs(angle_) < 0.2095;
    }

  private:
    double x_, speed_, angle_, turn_;
};

// [model]
class Policy : public nn::Model<Policy> {
  public:
    struct Output {
        Tensor log_probs;  // [2], one per action
        Tensor value;      // [1], the expected normalized return

        template <class F>
        void visit(F&& f) {
            f("log_probs", log_probs), f("value", value);
        }
    };

    Output forward(const Tensor& state) {
        const Tensor hidden = relu(affine(state));
        return {log_softmax(action(hidden), -1), value(hidden)};
    }
    void visit(nn::Visitor& v) override {
        v("affine", affine), v("action", action), v("value", value);
    }

    nn::Linear affine{4, 128}, action{128, 2}, value{128, 1};
};
// [/model]

int main() {
    axle::manual_seed(3);
    Policy policy;
    axle::optim::Adam optimizer(policy.parameters(), {.lr = 1e-2});
    double running = 10;  // moving average of the number of steps in an episode
    for (int episode = 0; episode < 400 && running < 120; ++episode) {
        // [episode]
        CartPole cart;
        std::vector<Tensor> log_probs, values;
        for (int t = 0; t < 200; ++t) {
            const auto [log_prob, value] = policy(cart.state());
            const std::int64_t action = multinomial(exp(log_prob.detach()), 1).item_int();
            log_probs.push_back(log_prob[action]);
            values.push_back(value[0]);
            if (!cart.step(action)) break;
        }
        // The return of a step is 1 plus 0.99 times the return of the next step.
        std::vector<double> sums(values.size());
        double sum = 0;
        for (std::size_t t = sums.size(); t-- > 0;) sums[t] = sum = 1 + 0.99 * sum;
        Tensor returns = axle::tensor(sums).to(axle::f32);
        returns = (returns - returns.mean()) / (returns.std() + 1e-7);

        const Tensor value = stack(values);
        const Tensor advantage = returns - value.detach();
        const Tensor loss = -(stack(log_probs) * advantage).sum() +
                            smooth_l1_loss(value, returns, {.reduction = axle::Reduction::sum});
        optimizer.zero_grad();
        loss.backward();
        optimizer.step();
        // [/episode]
        running += 0.05 * (static_cast<double>(values.size()) - running);
        if (episode % 20 == 0)
            std::cout << "episode " << episode << ": " << values.size() << " steps, average "
                      << running << '\n';
    }
    std::cout << "average number of steps: " << running << '\n';
    return running >= 120 ? 0 : 1;
}
