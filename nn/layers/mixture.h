// MixtureOfExperts: feed-forward layers ("experts"). Each token uses only a few experts.
//
//     nn::MixtureOfExperts block(64, 128, {.experts = 8, .top_k = 2});
//     Tensor y = block(x);                                    // [..., 64]
//     (loss + 0.01 * block.auxiliary_loss()).backward();      // keeps the experts equally busy
//
// The design follows Lepikhin et al., "GShard" (arXiv:2006.16668), Fedus et al., "Switch
// Transformers" (arXiv:2101.03961) and, for the experts, Jiang et al., "Mixtral of Experts"
// (arXiv:2401.04088).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "nn/layers/linear.h"
#include "nn/module.h"

namespace axle::nn {

struct MixtureOptions {
    std::int64_t experts = 8;
    std::int64_t top_k = 2;  // the number of experts of a token
    // If set, an expert computes at most ceil(capacity_factor * top_k * tokens / experts) tokens of
    // a call. First choices of tokens have priority over second choices, and earlier tokens over
    // later tokens. Choices beyond the capacity are dropped: the expert adds nothing to the outputs
    // of these tokens.
    std::optional<double> capacity_factor = {};
    // Whether the probabilities of the chosen experts are divided by their sum.
    bool normalizes = true;
    Activation activation = Activation::silu;
};

// The result of mix_experts().
struct Mixture {
    Tensor output;                     // x's shape
    Tensor auxiliary_loss;             // MixtureOfExperts::auxiliary_loss()
    std::vector<std::int64_t> counts;  // the number of tokens of each expert, without dropped ones
    std::int64_t dropped = 0;          // the number of dropped choices
};
// Sends each token of x [..., width] to the experts that the router's `logits` [tokens, experts]
// select. The output is the sum of the experts' outputs, weighted by the router's probabilities.
// compute(rows, counts) must return the outputs [M, width] of the experts for rows [M, width] that
// are ordered by expert; expert e has counts[e] rows. The host waits for the logits. Options must
// be valid for MixtureOfExperts; they are not checked.
Mixture mix_experts(const Tensor& x, const Tensor& logits, const MixtureOptions& options,
                    const std::function<Tensor(const Tensor& rows,
                                               const std::vector<std::int64_t>& counts)>& compute);

// The weights of experts: stacks of matrices, which ranks may divide along the first dimension.
struct ExpertWeights {
    Tensor gate, up;  // [experts, hidden, width]
    Tensor down;      // [experts, width, hidden]
};

class MixtureOfExperts;

// Replaces the computation of the experts, for example to divide them among processes
// (dist/expert_parallel/). A clone of a MixtureOfExperts shares the policy.
struct ExpertPolicy {
    virtual ~ExpertPolicy() = default;
    // Returns the outputs [M, width] of the experts for rows [M, width]. The rows are ordered by
    // expert, and expert e has counts[e] rows.
    virtual Tensor compute(const MixtureOfExperts& layer, const Tensor& rows,
                           const std::vector<std::int64_t>& counts) = 0;
};

// Expert e computes down[e] (activation(gate[e] x) * (up[e] x)). The output for a token is the sum
// of the outputs of its experts, weighted by the probabilities that the router assigns to them.
class MixtureOfExperts : public Model<MixtureOfExperts> {
  public:
    // Initializes the matrices as Linear does. Throws ValueError unless all sizes are positive,
    // top_k is at most the number of experts, and capacity_factor, if set, is positive and finite.
    MixtureOfExperts(std::int64_t width, std::int64_t hidden, MixtureOptions options = {});
    // Maps x [..., width] to [..., width]. The host waits for the choices of the router. Throws
    // ShapeError unless the last dimension of x is `width`.
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override;

    // Returns the load balancing loss of the last forward, a 0-d tensor: experts * sum over e of
    // f_e p_e. Here, f_e is the share of expert e in the choices (before tokens are dropped), and
    // p_e its mean probability. The loss is 1 if both are uniform. Throws UsageError before the
    // first forward.
    Tensor auxiliary_loss() const;
    // Return the number of tokens of each expert in the last forward, without dropped choices, and
    // the number of dropped choices.
    const std::vector<std::int64_t>& counts() const { return counts_; }
    std::int64_t dropped() const { return dropped_; }

    // Returns the outputs [M, width] of the experts with these weights for rows [M, width], which
    // are ordered by expert; expert e has counts[e] rows.
    Tensor compute(const ExpertWeights& weights, const Tensor& rows,
                   const std::vector<std::int64_t>& counts) const;

    Linear router;  // without bias
    ExpertWeights experts;
    std::shared_ptr<ExpertPolicy> policy;  // computes the experts; null by default
    const MixtureOptions& options() const { return options_; }

  private:
    MixtureOptions options_;
    Tensor auxiliary_;
    std::vector<std::int64_t> counts_;
    std::int64_t dropped_ = 0;
};

}  // namespace axle::nn
