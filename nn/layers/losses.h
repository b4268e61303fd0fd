// Loss modules with PyTorch's names and defaults. Each calls the function of the same meaning in
// core/losses.h, which documents the operands, the options and the errors. Weights of classes and
// elements are buffers, so that they move with the module.
//
//     nn::CrossEntropyLoss criterion({.label_smoothing = 0.1});
//     criterion(model(x), labels).backward();
#pragma once

#include <utility>

#include "nn/module.h"

namespace axle::nn {

class L1Loss : public Model<L1Loss> {
  public:
    explicit L1Loss(Reduction reduction_ = Reduction::mean) : reduction(reduction_) {}
    Tensor forward(const Tensor& x, const Tensor& target) { return l1_loss(x, target, reduction); }
    void visit(Visitor&) override {}

    Reduction reduction;
};

class MSELoss : public Model<MSELoss> {
  public:
    explicit MSELoss(Reduction reduction_ = Reduction::mean) : reduction(reduction_) {}
    Tensor forward(const Tensor& x, const Tensor& target) { return mse_loss(x, target, reduction); }
    void visit(Visitor&) override {}

    Reduction reduction;
};

class SmoothL1Loss : public Model<SmoothL1Loss> {
  public:
    explicit SmoothL1Loss(SmoothL1LossOptions options_ = {}) : options(options_) {}
    Tensor forward(const Tensor& x, const Tensor& target) {
        return smooth_l1_loss(x, target, options);
    }
    void visit(Visitor&) override {}

    SmoothL1LossOptions options;
};

class HuberLoss : public Model<HuberLoss> {
  public:
    explicit HuberLoss(HuberLossOptions options_ = {}) : options(std::move(options_)) {}
    Tensor forward(const Tensor& x, const Tensor& target) { return huber_loss(x, target, options); }
    void visit(Visitor& v) override { v.buffer("weight", options.weight); }

    HuberLossOptions options;
};

class CrossEntropyLoss : public Model<CrossEntropyLoss> {
  public:
    explicit CrossEntropyLoss(CrossEntropyOptions options_ = {}) : options(std::move(options_)) {}
    Tensor forward(const Tensor& logits, const Tensor& targets) {
        return cross_entropy(logits, targets, options);
    }
    void visit(Visitor& v) override { v.buffer("weight", options.weight); }

    CrossEntropyOptions options;
};

class NLLLoss : public Model<NLLLoss> {
  public:
    explicit NLLLoss(NllLossOptions options_ = {}) : options(std::move(options_)) {}
    Tensor forward(const Tensor& log_probs, const Tensor& targets) {
        return nll_loss(log_probs, targets, options);
    }
    void visit(Visitor& v) override { v.buffer("weight", options.weight); }

    NllLossOptions options;
};

class KLDivLoss : public Model<KLDivLoss> {
  public:
    explicit KLDivLoss(KlDivOptions options_ = {}) : options(options_) {}
    Tensor forward(const Tensor& x, const Tensor& target) { return kl_div(x, target, options); }
    void visit(Visitor&) override {}

    KlDivOptions options;
};

class BCELoss : public Model<BCELoss> {
  public:
    explicit BCELoss(BinaryCrossEntropyOptions options_ = {}) : options(std::move(options_)) {}
    Tensor forward(const Tensor& x, const Tensor& target) {
        return binary_cross_entropy(x, target, options);
    }
    void visit(Visitor& v) override { v.buffer("weight", options.weight); }

    BinaryCrossEntropyOptions options;
};

class BCEWithLogitsLoss : public Model<BCEWithLogitsLoss> {
  public:
    explicit BCEWithLogitsLoss(BinaryCrossEntropyOptions options_ = {})
        : options(std::move(options_)) {}
    Tensor forward(const Tensor& x, const Tensor& target) {
        return binary_cross_entropy_with_logits(x, target, options);
    }
    void visit(Visitor& v) override {
        v.buffer("weight", options.weight), v.buffer("pos_weight", options.pos_weight);
    }

    BinaryCrossEntropyOptions options;
};

class SoftMarginLoss : public Model<SoftMarginLoss> {
  public:
    explicit SoftMarginLoss(Reduction reduction_ = Reduction::mean) : reduction(reduction_) {}
    Tensor forward(const Tensor& x, const Tensor& target) {
        return soft_margin_loss(x, target, reduction);
    }
    void visit(Visitor&) override {}

    Reduction reduction;
};

class MultiLabelSoftMarginLoss : public Model<MultiLabelSoftMarginLoss> {
  public:
    explicit MultiLabelSoftMarginLoss(MultiLabelSoftMarginLossOptions options_ = {})
        : options(std::move(options_)) {}
    Tensor forward(const Tensor& x, const Tensor& target) {
        return multilabel_soft_margin_loss(x, target, options);
    }
    void visit(Visitor& v) override { v.buffer("weight", options.weight); }

    MultiLabelSoftMarginLossOptions options;
};

class MultiLabelMarginLoss : public Model<MultiLabelMarginLoss> {
  public:
    explicit MultiLabelMarginLoss(Reduction reduction_ = Reduction::mean) : reduction(reduction_) {}
    Tensor forward(const Tensor& x, const Tensor& target) {
        return multilabel_margin_loss(x, target, reduction);
    }
    void visit(Visitor&) override {}

    Reduction reduction;
};

class MultiMarginLoss : public Model<MultiMarginLoss> {
  public:
    explicit MultiMarginLoss(MultiMarginLossOptions options_ = {}) : options(std::move(options_)) {}
    Tensor forward(const Tensor& x, const Tensor& target) {
        return multi_margin_loss(x, target, options);
    }
    void visit(Visitor& v) override { v.buffer("weight", options.weight); }

    MultiMarginLossOptions options;
};

class MarginRankingLoss : public Model<MarginRankingLoss> {
  public:
    explicit MarginRankingLoss(MarginRankingLossOptions options_ = {}) : options(options_) {}
    Tensor forward(const Tensor& x1, const Tensor& x2, const Tensor& target) {
        return margin_ranking_loss(x1, x2, target, options);
    }
    void visit(Visitor&) override {}

    MarginRankingLossOptions options;
};

class HingeEmbeddingLoss : public Model<HingeEmbeddingLoss> {
  public:
    explicit HingeEmbeddingLoss(HingeEmbeddingLossOptions options_ = {}) : options(options_) {}
    Tensor forward(const Tensor& x, const Tensor& target) {
        return hinge_embedding_loss(x, target, options);
    }
    void visit(Visitor&) override {}

    HingeEmbeddingLossOptions options;
};

class CosineEmbeddingLoss : public Model<CosineEmbeddingLoss> {
  public:
    explicit CosineEmbeddingLoss(CosineEmbeddingLossOptions options_ = {}) : options(options_) {}
    Tensor forward(const Tensor& x1, const Tensor& x2, const Tensor& target) {
        return cosine_embedding_loss(x1, x2, target, options);
    }
    void visit(Visitor&) override {}

    CosineEmbeddingLossOptions options;
};

class TripletMarginLoss : public Model<TripletMarginLoss> {
  public:
    explicit TripletMarginLoss(TripletMarginLossOptions options_ = {}) : options(options_) {}
    Tensor forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
        return triplet_margin_loss(anchor, positive, negative, options);
    }
    void visit(Visitor&) override {}

    TripletMarginLossOptions options;
};

class TripletMarginWithDistanceLoss : public Model<TripletMarginWithDistanceLoss> {
  public:
    explicit TripletMarginWithDistanceLoss(TripletMarginWithDistanceLossOptions options_ = {})
        : options(std::move(options_)) {}
    Tensor forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
        return triplet_margin_with_distance_loss(anchor, positive, negative, options);
    }
    void visit(Visitor&) override {}

    TripletMarginWithDistanceLossOptions options;
};

class GaussianNLLLoss : public Model<GaussianNLLLoss> {
  public:
    explicit GaussianNLLLoss(GaussianNllLossOptions options_ = {}) : options(options_) {}
    Tensor forward(const Tensor& x, const Tensor& target, const Tensor& var) {
        return gaussian_nll_loss(x, target, var, options);
    }
    void visit(Visitor&) override {}

    GaussianNllLossOptions options;
};

class PoissonNLLLoss : public Model<PoissonNLLLoss> {
  public:
    explicit PoissonNLLLoss(PoissonNllLossOptions options_ = {}) : options(options_) {}
    Tensor forward(const Tensor& x, const Tensor& target) {
        return poisson_nll_loss(x, target, options);
    }
    void visit(Visitor&) override {}

    PoissonNllLossOptions options;
};

class CTCLoss : public Model<CTCLoss> {
  public:
    explicit CTCLoss(CtcLossOptions options_ = {}) : options(options_) {}
    Tensor forward(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                   const Tensor& target_lengths) {
        return ctc_loss(log_probs, targets, input_lengths, target_lengths, options);
    }
    void visit(Visitor&) override {}

    CtcLossOptions options;
};

}  // namespace axle::nn
