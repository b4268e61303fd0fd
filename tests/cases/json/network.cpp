#include "tests/cases/json/call.h"

namespace axle::tests {

namespace {

// Returns argument[0], which is the size of the normalized dimension; only one is supported.
void require_last_dim(Call& c) {
    const Dims shape = c.dims("normalized_shape");
    if (shape.size() != 1 || shape[0] != c.x(0).shape().back())
        throw ValueError("argument normalized_shape: only the last dimension is supported");
}

void add_products(NamedOps& ops) {
    ops["matmul"] = [](Call& c) { return matmul(c.x(0), c.x(1)); };
    ops["linear"] = [](Call& c) { return linear(c.x(0), c.x(1), c.optional_x(2)); };
    ops["conv2d"] = [](Call& c) {
        return conv2d(c.x(0), c.x(1), c.optional_x(2),
                      {.stride = c.size2("stride", 1),
                       .padding = c.size2("padding", 0),
                       .dilation = c.size2("dilation", 1),
                       .groups = c.integer("groups", 1)});
    };
    ops["conv_transpose2d"] = [](Call& c) {
        return conv_transpose2d(c.x(0), c.x(1), c.optional_x(2),
                                {.stride = c.size2("stride", 1),
                                 .padding = c.size2("padding", 0),
                                 .output_padding = c.size2("output_padding", 0),
                                 .groups = c.integer("groups", 1),
                                 .dilation = c.size2("dilation", 1)});
    };
    ops["scaled_dot_product_attention"] = [](Call& c) {
        return scaled_dot_product_attention(c.x(0), c.x(1), c.x(2),
                                            {.mask = c.optional_x(3),
                                             .causal = c.flag("is_causal", false),
                                             .scale = c.maybe_number("scale")});
    };
}

void add_norms(NamedOps& ops) {
    ops["layer_norm"] = [](Call& c) {
        require_last_dim(c);
        return layer_norm(c.x(0), c.optional_x(1), c.optional_x(2), c.number("eps", 1e-5));
    };
    ops["rms_norm"] = [](Call& c) {
        require_last_dim(c);
        // The default of PyTorch is the machine epsilon of the dtype.
        const double eps = c.x(0).dtype() == f64 ? 0x1p-52 : 0x1p-23;
        return rms_norm(c.x(0), c.optional_x(1), c.number("eps", eps));
    };
    // Only the result counts: the running statistics are copied.
    ops["batch_norm"] = [](Call& c) {
        const auto copied = [](const Tensor& x) { return x.defined() ? clone(x) : x; };
        return batch_norm(c.x(0), copied(c.optional_x(1)), copied(c.optional_x(2)), c.optional_x(3),
                          c.optional_x(4), c.flag("training", false), c.number("momentum", 0.1),
                          c.number("eps", 1e-5));
    };
    ops["group_norm"] = [](Call& c) {
        return group_norm(c.x(0), c.integer("num_groups"), c.optional_x(1), c.optional_x(2),
                          c.number("eps", 1e-5));
    };
}

void add_pools(NamedOps& ops) {
    ops["max_pool2d"] = [](Call& c) {
        return max_pool2d(c.x(0), c.size2("kernel_size", 1),
                          {.stride = c.maybe_size2("stride"),
                           .padding = c.size2("padding", 0),
                           .dilation = c.size2("dilation", 1),
                           .ceil_mode = c.flag("ceil_mode", false)});
    };
    ops["avg_pool2d"] = [](Call& c) {
        return avg_pool2d(c.x(0), c.size2("kernel_size", 1),
                          {.stride = c.maybe_size2("stride"),
                           .padding = c.size2("padding", 0),
                           .ceil_mode = c.flag("ceil_mode", false),
                           .count_include_pad = c.flag("count_include_pad", true),
                           .divisor_override = c.maybe_integer("divisor_override")});
    };
    ops["adaptive_avg_pool2d"] = [](Call& c) {
        return adaptive_avg_pool2d(c.x(0), c.size2("output_size", 1));
    };
    ops["adaptive_max_pool2d"] = [](Call& c) {
        return adaptive_max_pool2d(c.x(0), c.size2("output_size", 1));
    };
    ops["interpolate"] = [](Call& c) {
        InterpolateOptions options;
        options.size = c.maybe_size2("size");
        if (c.has("scale_factor")) options.scale_factor = Scale2(c.number("scale_factor"));
        const std::string mode = c.text("mode", "nearest");
        if (mode != "nearest" && mode != "bilinear")
            throw ValueError(str("argument mode: ", mode, " is not supported"));
        if (mode == "bilinear") options.mode = Interpolation::bilinear;
        options.align_corners = c.flag("align_corners", false);
        return interpolate(c.x(0), options);
    };
}

void add_losses(NamedOps& ops) {
    ops["mse_loss"] = [](Call& c) { return mse_loss(c.x(0), c.x(1), c.reduction()); };
    ops["cross_entropy"] = [](Call& c) {
        return cross_entropy(c.x(0), c.x(1),
                             {.ignore_index = c.integer("ignore_index", -100),
                              .label_smoothing = c.number("label_smoothing", 0),
                              .reduction = c.reduction()});
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
}

}  // namespace

void add_network_ops(NamedOps& ops) {
    add_products(ops);
    add_norms(ops);
    add_pools(ops);
    add_losses(ops);
}

}  // namespace axle::tests
