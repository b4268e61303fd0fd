#include "nn/layers/losses.h"

#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_same_bits;

Tensor signs(const Shape& shape) { return randint(0, 2, shape) * 2 - 1; }

TEST(LossModules, ApplyTheirReduction) {
    const Tensor x = randn({3, 4}), y = randn({3, 4}), sign = signs({3, 4});
    const Tensor labels = randint(0, 4, {3, 4});
    expect_same_bits(nn::L1Loss()(x, y), l1_loss(x, y));
    expect_same_bits(nn::MSELoss()(x, y), mse_loss(x, y));
    expect_same_bits(nn::SoftMarginLoss()(x, sign), soft_margin_loss(x, sign));
    expect_same_bits(nn::MultiLabelMarginLoss()(x, labels), multilabel_margin_loss(x, labels));
    constexpr Reduction kSum = Reduction::sum;
    expect_same_bits(nn::L1Loss(kSum)(x, y), l1_loss(x, y, kSum));
    expect_same_bits(nn::MSELoss(kSum)(x, y), mse_loss(x, y, kSum));
    expect_same_bits(nn::SoftMarginLoss(kSum)(x, sign), soft_margin_loss(x, sign, kSum));
    expect_same_bits(nn::MultiLabelMarginLoss(kSum)(x, labels),
                     multilabel_margin_loss(x, labels, kSum));
}

TEST(DifferenceLosses, ApplyTheirOptions) {
    const Tensor x = randn({3, 4}), y = randn({3, 4}), weight = rand({3, 4});
    const SmoothL1LossOptions smooth = {.beta = 0.5, .reduction = Reduction::sum};
    expect_same_bits(nn::SmoothL1Loss(smooth)(x, y), smooth_l1_loss(x, y, smooth));
    const HuberLossOptions huber = {.delta = 0.5, .weight = weight};
    expect_same_bits(nn::HuberLoss(huber)(x, y), huber_loss(x, y, huber));
}

TEST(ClassLosses, ApplyTheirOptions) {
    const Tensor x = randn({5, 4}), log_probs = log_softmax(x), weight = rand({4});
    const Tensor labels = randint(0, 4, {5}), probabilities = rand({5, 4});
    const CrossEntropyOptions entropy = {
        .weight = weight, .ignore_index = 1, .label_smoothing = 0.25, .reduction = Reduction::sum};
    expect_same_bits(nn::CrossEntropyLoss(entropy)(x, labels), cross_entropy(x, labels, entropy));
    const NllLossOptions nll = {.weight = weight, .ignore_index = 1, .reduction = Reduction::sum};
    expect_same_bits(nn::NLLLoss(nll)(log_probs, labels), nll_loss(log_probs, labels, nll));
    const KlDivOptions divergence = {.reduction = KlDivReduction::batchmean, .log_target = true};
    expect_same_bits(nn::KLDivLoss(divergence)(log_probs, x), kl_div(log_probs, x, divergence));
    const MultiMarginLossOptions margin = {
        .p = 2, .margin = 0.5, .weight = weight, .reduction = Reduction::sum};
    expect_same_bits(nn::MultiMarginLoss(margin)(x, labels), multi_margin_loss(x, labels, margin));
    const BinaryCrossEntropyOptions binary = {.weight = weight, .reduction = Reduction::sum};
    expect_same_bits(nn::BCELoss(binary)(sigmoid(x), probabilities),
                     binary_cross_entropy(sigmoid(x), probabilities, binary));
    const BinaryCrossEntropyOptions logits = {.weight = weight, .pos_weight = rand({4})};
    expect_same_bits(nn::BCEWithLogitsLoss(logits)(x, probabilities),
                     binary_cross_entropy_with_logits(x, probabilities, logits));
    const MultiLabelSoftMarginLossOptions soft = {.weight = weight, .reduction = Reduction::sum};
    expect_same_bits(nn::MultiLabelSoftMarginLoss(soft)(x, probabilities),
                     multilabel_soft_margin_loss(x, probabilities, soft));
}

TEST(MarginLosses, ApplyTheirOptions) {
    const Tensor x = randn({5, 4}), y = randn({5, 4}), z = randn({5, 4}), sign = signs({5});
    const MarginRankingLossOptions ranking = {.margin = 0.5, .reduction = Reduction::sum};
    const Tensor a = x.select(1, 0), b = x.select(1, 1);
    expect_same_bits(nn::MarginRankingLoss(ranking)(a, b, sign),
                     margin_ranking_loss(a, b, sign, ranking));
    const HingeEmbeddingLossOptions hinge = {.margin = 0.5, .reduction = Reduction::sum};
    expect_same_bits(nn::HingeEmbeddingLoss(hinge)(a, sign), hinge_embedding_loss(a, sign, hinge));
    const CosineEmbeddingLossOptions cosine = {.margin = -0.5, .reduction = Reduction::sum};
    expect_same_bits(nn::CosineEmbeddingLoss(cosine)(x, y, sign),
                     cosine_embedding_loss(x, y, sign, cosine));
    const TripletMarginLossOptions triplet = {
        .margin = 3, .p = 1, .eps = 0.5, .swap = true, .reduction = Reduction::sum};
    expect_same_bits(nn::TripletMarginLoss(triplet)(x, y, z),
                     triplet_margin_loss(x, y, z, triplet));
    const TripletMarginWithDistanceLossOptions distance = {
        .distance_function = [](const Tensor& p,
                                const Tensor& q) { return sum(square(p - q), {-1}); },
        .margin = 3,
        .swap = true};
    expect_same_bits(nn::TripletMarginWithDistanceLoss(distance)(x, y, z),
                     triplet_margin_with_distance_loss(x, y, z, distance));
}

TEST(LikelihoodLosses, ApplyTheirOptions) {
    const Tensor x = randn({5, 4}), y = randn({5, 4}), variance = rand({5, 4});
    const GaussianNllLossOptions gaussian = {.full = true, .eps = 0.5, .reduction = Reduction::sum};
    expect_same_bits(nn::GaussianNLLLoss(gaussian)(x, y, variance),
                     gaussian_nll_loss(x, y, variance, gaussian));
    const PoissonNllLossOptions poisson = {
        .log_input = false, .full = true, .eps = 0.5, .reduction = Reduction::sum};
    expect_same_bits(nn::PoissonNLLLoss(poisson)(variance, 3.0 * variance),
                     poisson_nll_loss(variance, 3.0 * variance, poisson));
    const Tensor log_probs = log_softmax(randn({6, 2, 5})), targets = randint(0, 4, {2, 3});
    const Tensor steps = tensor({6, 2}), lengths = tensor({3, 3});
    const CtcLossOptions ctc = {.blank = 4, .zero_infinity = true, .reduction = Reduction::sum};
    expect_same_bits(nn::CTCLoss(ctc)(log_probs, targets, steps, lengths),
                     ctc_loss(log_probs, targets, steps, lengths, ctc));
}

TEST(CrossEntropyLoss, HasWeightAsBuffer) {
    nn::CrossEntropyLoss loss({.weight = ones({4})});
    EXPECT_TRUE(loss.parameters().empty());
    ASSERT_EQ(loss.state_dict().size(), 1u);
    EXPECT_EQ(loss.state_dict()[0].first, "weight");
    EXPECT_TRUE(nn::CrossEntropyLoss().state_dict().empty());
    loss.to(f64);
    EXPECT_EQ(loss.options.weight.dtype(), f64);
    const nn::CrossEntropyLoss copy = loss.clone();
    EXPECT_NE(copy.options.weight.raw_data(), loss.options.weight.raw_data());
}

}  // namespace
}  // namespace axle
