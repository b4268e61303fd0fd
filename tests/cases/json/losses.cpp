#include "tests/cases/json/call.h"

namespace axle::tests {

namespace {

void name_likelihoods(NamedOps& ops) {
    ops["cross_entropy"] = [](Call& c) {
        return cross_entropy(c.x(0), c.x(1),
                             {.weight = c.optional_x(2),
                              .ignore_index = c.integer("ignore_index", -100),
                              .label_smoothing = c.number("label_smoothing", 0),
                              .reduction = c.reduction()});
    };
    ops["linear_cross_entropy"] = [](Call& c) {
        // The inputs are x, linear_weight, target, linear_bias and weight.
        if (c.optional_x(3).defined()) throw ValueError("input 3: a bias is not supported");
        return linear_cross_entropy(c.x(0), c.x(1), c.x(2),
                                    {.weight = c.optional_x(4),
                                     .ignore_index = c.integer("ignore_index", -100),
                                     .label_smoothing = c.number("label_smoothing", 0),
                                     .reduction = c.reduction()});
    };
    ops["nll_loss"] = [](Call& c) {
        return nll_loss(c.x(0), c.x(1),
                        {.weight = c.optional_x(2),
                         .ignore_index = c.integer("ignore_index", -100),
                         .reduction = c.reduction()});
    };
    ops["kl_div"] = [](Call& c) {
        const std::map<std::string, KlDivReduction> reductions = {
            {"none", KlDivReduction::none},
            {"mean", KlDivReduction::mean},
            {"sum", KlDivReduction::sum},
            {"batchmean", KlDivReduction::batchmean}};
        const auto reduction = reductions.find(c.reduction_name());
        if (reduction == reductions.end())
            throw ValueError("argument reduction: expected none, mean, sum or batchmean");
        return kl_div(c.x(0), c.x(1),
                      {.reduction = reduction->second, .log_target = c.flag("log_target", false)});
    };
    ops["gaussian_nll_loss"] = [](Call& c) {
        const GaussianNllLossOptions options = {.full = c.flag("full", false),
                                                .eps = c.number("eps", 1e-6),
                                                .reduction = c.reduction()};
        return c.has("var") ? gaussian_nll_loss(c.x(0), c.x(1), c.number("var"), options)
                            : gaussian_nll_loss(c.x(0), c.x(1), c.x(2), options);
    };
    ops["poisson_nll_loss"] = [](Call& c) {
        return poisson_nll_loss(c.x(0), c.x(1),
                                {.log_input = c.flag("log_input", true),
                                 .full = c.flag("full", false),
                                 .eps = c.number("eps", 1e-8),
                                 .reduction = c.reduction()});
    };
    // The lengths are inputs or lists of numbers.
    ops["ctc_loss"] = [](Call& c) {
        const auto lengths = [&](const char* name, std::size_t i) {
            return c.has(name) ? tensor(c.integers(name)) : c.x(i);
        };
        const Tensor input_lengths = lengths("input_lengths", 2);
        const Tensor target_lengths = lengths("target_lengths", c.has("input_lengths") ? 2 : 3);
        return ctc_loss(c.x(0), c.x(1), input_lengths, target_lengths,
                        {.blank = c.integer("blank", 0),
                         .zero_infinity = c.flag("zero_infinity", false),
                         .reduction = c.reduction()});
    };
}

void name_regressions(NamedOps& ops) {
    ops["mse_loss"] = [](Call& c) {
        return mse_loss(c.x(0), c.x(1), c.reduction(), c.optional_x(2));
    };
    ops["l1_loss"] = [](Call& c) {
        return l1_loss(c.x(0), c.x(1), c.reduction(), c.optional_x(2));
    };
    ops["smooth_l1_loss"] = [](Call& c) {
        return smooth_l1_loss(c.x(0), c.x(1),
                              {.beta = c.number("beta", 1), .reduction = c.reduction()});
    };
    ops["huber_loss"] = [](Call& c) {
        return huber_loss(
            c.x(0), c.x(1),
            {.delta = c.number("delta", 1), .weight = c.optional_x(2), .reduction = c.reduction()});
    };
    ops["binary_cross_entropy"] = [](Call& c) {
        return binary_cross_entropy(c.x(0), c.x(1),
                                    {.weight = c.optional_x(2), .reduction = c.reduction()});
    };
    ops["binary_cross_entropy_with_logits"] = [](Call& c) {
        return binary_cross_entropy_with_logits(
            c.x(0), c.x(1),
            {.weight = c.optional_x(2), .pos_weight = c.optional_x(3), .reduction = c.reduction()});
    };
    // sigmoid_focal_loss is a function of torchvision.ops.
    ops["sigmoid_focal_loss"] = [](Call& c) {
        const double alpha = c.number("alpha", 0.25), gamma = c.number("gamma", 2);
        const Reduction reduction = c.has("reduction") ? c.reduction() : Reduction::none;
        return sigmoid_focal_loss(c.x(0), c.x(1),
                                  {.alpha = alpha, .gamma = gamma, .reduction = reduction});
    };
}

void name_margins(NamedOps& ops) {
    ops["soft_margin_loss"] = [](Call& c) {
        return soft_margin_loss(c.x(0), c.x(1), c.reduction());
    };
    ops["multilabel_soft_margin_loss"] = [](Call& c) {
        return multilabel_soft_margin_loss(c.x(0), c.x(1),
                                           {.weight = c.optional_x(2), .reduction = c.reduction()});
    };
    ops["margin_ranking_loss"] = [](Call& c) {
        return margin_ranking_loss(c.x(0), c.x(1), c.x(2),
                                   {.margin = c.number("margin", 0), .reduction = c.reduction()});
    };
    ops["hinge_embedding_loss"] = [](Call& c) {
        return hinge_embedding_loss(c.x(0), c.x(1),
                                    {.margin = c.number("margin", 1), .reduction = c.reduction()});
    };
    ops["multi_margin_loss"] = [](Call& c) {
        return multi_margin_loss(c.x(0), c.x(1),
                                 {.p = static_cast<int>(c.integer("p", 1)),
                                  .margin = c.number("margin", 1),
                                  .weight = c.optional_x(2),
                                  .reduction = c.reduction()});
    };
    ops["multilabel_margin_loss"] = [](Call& c) {
        return multilabel_margin_loss(c.x(0), c.x(1), c.reduction());
    };
    ops["cosine_embedding_loss"] = [](Call& c) {
        return cosine_embedding_loss(c.x(0), c.x(1), c.x(2),
                                     {.margin = c.number("margin", 0), .reduction = c.reduction()});
    };
    ops["triplet_margin_loss"] = [](Call& c) {
        return triplet_margin_loss(c.x(0), c.x(1), c.x(2),
                                   {.margin = c.number("margin", 1),
                                    .p = c.number("p", 2),
                                    .eps = c.number("eps", 1e-6),
                                    .swap = c.flag("swap", false),
                                    .reduction = c.reduction()});
    };
    ops["triplet_margin_with_distance_loss"] = [](Call& c) {
        return triplet_margin_with_distance_loss(c.x(0), c.x(1), c.x(2),
                                                 {.margin = c.number("margin", 1),
                                                  .swap = c.flag("swap", false),
                                                  .reduction = c.reduction()});
    };
}

}  // namespace

void add_loss_ops(NamedOps& ops) {
    name_likelihoods(ops);
    name_regressions(ops);
    name_margins(ops);
}

}  // namespace axle::tests
