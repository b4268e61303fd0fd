#include <algorithm>
#include <type_traits>
#include <vector>

#include "core/sampling.h"
#include "tests/cases/json/call.h"

namespace axle::tests {

namespace {

// An input x whose last dimensions, with the sizes normalized_shape, are merged into one.
struct MergedLast {
    Tensor x;
    std::int64_t size = 1;

    explicit MergedLast(Call& c) {
        const Shape normalized = c.dims("normalized_shape");
        Shape shape = c.x(0).shape();
        for (int i = 1; i <= normalized.size(); ++i) {
            if (i > shape.size() || shape.back(i) != normalized.back(i))
                throw ValueError(str("argument normalized_shape: ", normalized,
                                     " does not end the shape ", shape));
            size *= normalized.back(i);
        }
        for (int i = 0; i < normalized.size(); ++i) shape.erase(shape.size() - 1);
        shape.push_back(size);
        x = reshape(c.x(0), shape);
    }
    Tensor merged(const Tensor& w) const { return w.defined() ? reshape(w, Shape(size)) : w; }
};

// The padding "same" of a convolution keeps the size of the image. If the number of zeros is odd,
// the end of a dimension gets one more.
Tensor conv2d_same(Call& c) {
    const Size2 dilation = c.size2("dilation", 1);
    if (c.size2("stride", 1) != Size2(1))
        throw ValueError("argument padding: same needs the stride 1");
    const std::int64_t h = dilation.h * (c.x(1).size(-2) - 1);
    const std::int64_t w = dilation.w * (c.x(1).size(-1) - 1);
    return conv2d(pad(c.x(0), {w / 2, w - w / 2, h / 2, h - h / 2}), c.x(1), c.optional_x(2),
                  {.dilation = dilation, .groups = c.integer("groups", 1)});
}

void name_convolutions(NamedOps& ops) {
    ops["conv2d"] = [](Call& c) {
        if (c.is_text("padding") &&
            c.one_of<bool>("padding", "", {{"same", true}, {"valid", false}}))
            return conv2d_same(c);
        return conv2d(c.x(0), c.x(1), c.optional_x(2),
                      {.stride = c.size2("stride", 1),
                       .padding = c.is_text("padding") ? Size2(0) : c.size2("padding", 0),
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
        // The op always accepts grouped query heads, so enable_gqa has no effect.
        c.ignore({"enable_gqa"});
        c.support_only("dropout_p", 0);
        const AttentionOptions options = {.mask = c.optional_x(3),
                                          .causal = c.flag("is_causal", false),
                                          .scale = c.maybe_number("scale")};
        if (c.x(0).dim() != 3) return scaled_dot_product_attention(c.x(0), c.x(1), c.x(2), options);
        const auto one = [&](std::size_t i) { return unsqueeze(c.x(i), 0); };
        return squeeze(scaled_dot_product_attention(one(0), one(1), one(2), options), 0);
    };
}

void name_normalizations(NamedOps& ops) {
    ops["layer_norm"] = [](Call& c) {
        c.ignore({"cudnn_enable"});
        const MergedLast last(c);
        return reshape(layer_norm(last.x, last.merged(c.optional_x(1)),
                                  last.merged(c.optional_x(2)), c.number("eps", 1e-5)),
                       c.x(0).shape());
    };
    ops["rms_norm"] = [](Call& c) {
        const MergedLast last(c);
        const Tensor weight = last.merged(c.optional_x(1));
        const Tensor y =
            c.has("eps") ? rms_norm(last.x, weight, c.number("eps")) : rms_norm(last.x, weight);
        return reshape(y, c.x(0).shape());
    };
    // Updates copies of the running statistics, because the call returns only the output.
    ops["batch_norm"] = [](Call& c) {
        c.ignore({"cudnn_enabled"});
        const auto copied = [](const Tensor& x) { return x.defined() ? clone(x) : x; };
        return batch_norm(c.x(0), copied(c.optional_x(1)), copied(c.optional_x(2)), c.optional_x(3),
                          c.optional_x(4), c.flag("training", false), c.number("momentum", 0.1),
                          c.number("eps", 1e-5));
    };
    ops["group_norm"] = [](Call& c) {
        c.ignore({"cudnn_enabled"});
        return group_norm(c.x(0), c.integer("num_groups"), c.optional_x(1), c.optional_x(2),
                          c.number("eps", 1e-5));
    };
    ops["instance_norm"] = [](Call& c) {
        c.support_only("running_mean", nullptr), c.support_only("running_var", nullptr);
        c.support_only("use_input_stats", true), c.ignore({"momentum", "cudnn_enabled"});
        return instance_norm(c.x(0), c.optional_x(1), c.optional_x(2), c.number("eps", 1e-5));
    };
    ops["local_response_norm"] = [](Call& c) {
        return local_response_norm(c.x(0), c.integer("size"),
                                   {.alpha = c.number("alpha", 1e-4),
                                    .beta = c.number("beta", 0.75),
                                    .k = c.number("k", 1)});
    };
}

MaxPoolOptions max_pool_options(Call& c) {
    return {.stride = c.maybe_size2("stride"),
            .padding = c.size2("padding", 0),
            .dilation = c.size2("dilation", 1),
            .ceil_mode = c.flag("ceil_mode", false)};
}

// A null in the argument output_size keeps the size of x.
Size2 pooled_size(Call& c) {
    if (!c.has("output_size")) throw ValueError("argument output_size is missing");
    return c.size2("output_size", Size2(c.x(0).size(-2), c.x(0).size(-1)));
}

void name_pools(NamedOps& ops) {
    ops["max_pool2d"] = [](Call& c) {
        const Size2 kernel = c.size2("kernel_size");
        if (!c.flag("return_indices", false))
            return Outputs(max_pool2d(c.x(0), kernel, max_pool_options(c)));
        return Outputs(max_pool2d_with_indices(c.x(0), kernel, max_pool_options(c)));
    };
    ops["max_pool2d_with_indices"] = [](Call& c) {
        c.ignore({"return_indices"});
        return max_pool2d_with_indices(c.x(0), c.size2("kernel_size"), max_pool_options(c));
    };
    ops["avg_pool2d"] = [](Call& c) {
        return avg_pool2d(c.x(0), c.size2("kernel_size"),
                          {.stride = c.maybe_size2("stride"),
                           .padding = c.size2("padding", 0),
                           .ceil_mode = c.flag("ceil_mode", false),
                           .count_include_pad = c.flag("count_include_pad", true),
                           .divisor_override = c.maybe_integer("divisor_override")});
    };
    ops["adaptive_avg_pool2d"] = [](Call& c) {
        return adaptive_avg_pool2d(c.x(0), pooled_size(c));
    };
    ops["adaptive_max_pool2d"] = [](Call& c) {
        if (!c.flag("return_indices", false))
            return Outputs(adaptive_max_pool2d(c.x(0), pooled_size(c)));
        return Outputs(adaptive_max_pool2d_with_indices(c.x(0), pooled_size(c)));
    };
    ops["adaptive_max_pool2d_with_indices"] = [](Call& c) {
        c.ignore({"return_indices"});
        return adaptive_max_pool2d_with_indices(c.x(0), pooled_size(c));
    };
}

Outputs resized(Call& c, Interpolation mode, bool align_corners) {
    InterpolateOptions options;
    const auto given = [&](const char* name, auto& option) {
        if (!c.has(name)) return;
        using Numbers = std::remove_reference_t<decltype(*option)>;
        using T = std::remove_reference_t<decltype(option->of[0])>;
        const std::vector<double> numbers =
            c.is_list(name) ? c.numbers(name) : std::vector(1, c.number(name));
        if (numbers.empty()) return;
        if (numbers.size() > 3)
            throw ValueError(str("argument ", name, ": expected at most 3 numbers"));
        option = Numbers(T(0));
        option->count = c.is_list(name) ? static_cast<int>(numbers.size()) : 0;
        for (std::size_t i = 0; i < 3; ++i)
            option->of[i] = static_cast<T>(numbers[std::min(i, numbers.size() - 1)]);
    };
    given("size", options.size);
    given("scale_factor", options.scale_factor);
    options.recompute_scale_factor = c.flag("recompute_scale_factor", false);
    options.antialias = c.flag("antialias", false);
    options.mode = mode;
    options.align_corners = align_corners;
    return interpolate(c.x(0), options);
}

void name_resizing(NamedOps& ops) {
    const auto interpolate = [](Call& c) {
        const auto mode = c.one_of<Interpolation>("mode", "nearest",
                                                  {{"nearest", Interpolation::nearest},
                                                   {"nearest-exact", Interpolation::nearest_exact},
                                                   {"linear", Interpolation::linear},
                                                   {"bilinear", Interpolation::bilinear},
                                                   {"bicubic", Interpolation::bicubic},
                                                   {"trilinear", Interpolation::trilinear},
                                                   {"area", Interpolation::area}});
        return resized(c, mode, c.flag("align_corners", false));
    };
    ops["interpolate"] = interpolate;
    ops["upsample"] = interpolate;
    ops["grid_sample"] = [](Call& c) {
        return grid_sample(
            c.x(0), c.x(1),
            {.mode = c.one_of<GridMode>("mode", "bilinear",
                                        {{"bilinear", GridMode::bilinear},
                                         {"nearest", GridMode::nearest},
                                         {"bicubic", GridMode::bicubic}}),
             .padding_mode = c.one_of<GridPadding>("padding_mode", "zeros",
                                                   {{"zeros", GridPadding::zeros},
                                                    {"border", GridPadding::border},
                                                    {"reflection", GridPadding::reflection}}),
             .align_corners = c.flag("align_corners", false)});
    };
    ops["affine_grid"] = [](Call& c) {
        return affine_grid(c.x(0), c.dims("size"), c.flag("align_corners", false));
    };
    ops["upsample_nearest"] = [](Call& c) { return resized(c, Interpolation::nearest, false); };
    ops["upsample_bilinear"] = [](Call& c) { return resized(c, Interpolation::bilinear, true); };
}

}  // namespace

void add_network_ops(NamedOps& ops) {
    name_convolutions(ops);
    name_normalizations(ops);
    name_pools(ops);
    name_resizing(ops);
}

}  // namespace axle::tests
