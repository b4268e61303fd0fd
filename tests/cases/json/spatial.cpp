// Adds the convolutions, pools (except fractional pools) and unpools of core/spatial.h to the ops
// that JSON files can call.
#include "core/spatial.h"

#include "tests/cases/json/call.h"

namespace axle::tests {

namespace {

using Axes = std::optional<Dims>;

// Returns an argument that is an integer, or a list of one or n integers, as n integers. Returns
// nothing if the argument is missing or an empty list. A null stands for the size of the dimension
// of x.
Axes maybe_axes(Call& c, const std::string& name, int n) {
    if (!c.has(name)) return {};
    const nlohmann::json& value = c.value(name);
    if (value.is_array() && value.empty()) return {};
    const bool is_list = value.is_array() && value.size() > 1;
    const std::size_t size = value.is_array() ? value.size() : 1;
    if (is_list && size != static_cast<std::size_t>(n))
        throw ValueError(str("argument ", name, ": expected an integer or ", n, " integers"));
    Dims axes;
    for (int d = 0; d < n; ++d) {
        const nlohmann::json& axis = !value.is_array() ? value
                                     : is_list         ? value[static_cast<std::size_t>(d)]
                                                       : value.front();
        if (!axis.is_null() && !axis.is_number_integer())
            throw ValueError(str("argument ", name, ": expected integers"));
        axes.push_back(axis.is_null() ? c.x(0).size(d - n) : axis.get<std::int64_t>());
    }
    return axes;
}

Size3 as_size3(const Dims& axes) { return {axes[0], axes[1], axes[2]}; }
Size2 as_plane(const Dims& axes) { return {axes[0], axes[1]}; }

// Return arguments as sizes of one or three dimensions.
std::int64_t size1(Call& c, const std::string& name, std::int64_t fallback) {
    const Axes axes = maybe_axes(c, name, 1);
    return axes ? (*axes)[0] : fallback;
}
Size3 size3(Call& c, const std::string& name, Size3 fallback) {
    const Axes axes = maybe_axes(c, name, 3);
    return axes ? as_size3(*axes) : fallback;
}
std::optional<std::int64_t> maybe_size1(Call& c, const std::string& name) {
    const Axes axes = maybe_axes(c, name, 1);
    if (!axes) return {};
    return (*axes)[0];
}
std::optional<Size3> maybe_size3(Call& c, const std::string& name) {
    const Axes axes = maybe_axes(c, name, 3);
    if (!axes) return {};
    return as_size3(*axes);
}
std::int64_t required1(Call& c, const std::string& name) {
    if (!c.has(name)) throw ValueError(str("argument ", name, " is missing"));
    return *maybe_size1(c, name);
}
Size3 required3(Call& c, const std::string& name) {
    if (!c.has(name)) throw ValueError(str("argument ", name, " is missing"));
    return *maybe_size3(c, name);
}

// If the argument "padding" is "same", returns x with padding such that a convolution keeps its
// size. If the number of zeros is odd, the end of a dimension gets one more.
Tensor padded_same(Call& c, const Dims& dilation) {
    if (!c.is_text("padding") || !c.one_of<bool>("padding", "", {{"same", true}, {"valid", false}}))
        return c.x(0);
    const int n = dilation.size();
    Dims around;
    for (int d = n - 1; d >= 0; --d) {
        const std::int64_t zeros = dilation[d] * (c.x(1).size(d - n) - 1);
        around.push_back(zeros / 2);
        around.push_back(zeros - zeros / 2);
    }
    return pad(c.x(0), around);
}

void name_spatial_convolutions(NamedOps& ops) {
    ops["conv1d"] = [](Call& c) {
        const std::int64_t dilation = size1(c, "dilation", 1);
        const Tensor x = padded_same(c, dilation);
        return conv1d(x, c.x(1), c.optional_x(2),
                      {.stride = size1(c, "stride", 1),
                       .padding = c.is_text("padding") ? 0 : size1(c, "padding", 0),
                       .dilation = dilation,
                       .groups = c.integer("groups", 1)});
    };
    ops["conv3d"] = [](Call& c) {
        const Size3 dilation = size3(c, "dilation", 1);
        const Tensor x = padded_same(c, {dilation.d, dilation.h, dilation.w});
        return conv3d(x, c.x(1), c.optional_x(2),
                      {.stride = size3(c, "stride", 1),
                       .padding = c.is_text("padding") ? Size3(0) : size3(c, "padding", 0),
                       .dilation = dilation,
                       .groups = c.integer("groups", 1)});
    };
    ops["conv_transpose1d"] = [](Call& c) {
        return conv_transpose1d(c.x(0), c.x(1), c.optional_x(2),
                                {.stride = size1(c, "stride", 1),
                                 .padding = size1(c, "padding", 0),
                                 .output_padding = size1(c, "output_padding", 0),
                                 .groups = c.integer("groups", 1),
                                 .dilation = size1(c, "dilation", 1)});
    };
    ops["conv_transpose3d"] = [](Call& c) {
        return conv_transpose3d(c.x(0), c.x(1), c.optional_x(2),
                                {.stride = size3(c, "stride", 1),
                                 .padding = size3(c, "padding", 0),
                                 .output_padding = size3(c, "output_padding", 0),
                                 .groups = c.integer("groups", 1),
                                 .dilation = size3(c, "dilation", 1)});
    };
}

// Calls a max pool. `always` is true for the functions that always return indices.
Outputs max_pool_1(Call& c, bool always) {
    const std::int64_t kernel = required1(c, "kernel_size");
    const MaxPool1dOptions options = {.stride = maybe_size1(c, "stride"),
                                      .padding = size1(c, "padding", 0),
                                      .dilation = size1(c, "dilation", 1),
                                      .ceil_mode = c.flag("ceil_mode", false)};
    if (!c.flag("return_indices", false) && !always) return max_pool1d(c.x(0), kernel, options);
    return max_pool1d_with_indices(c.x(0), kernel, options);
}
Outputs max_pool_3(Call& c, bool always) {
    const Size3 kernel = required3(c, "kernel_size");
    const MaxPool3dOptions options = {.stride = maybe_size3(c, "stride"),
                                      .padding = size3(c, "padding", 0),
                                      .dilation = size3(c, "dilation", 1),
                                      .ceil_mode = c.flag("ceil_mode", false)};
    if (!c.flag("return_indices", false) && !always) return max_pool3d(c.x(0), kernel, options);
    return max_pool3d_with_indices(c.x(0), kernel, options);
}
Outputs adaptive_max_pool_1(Call& c, bool always) {
    const std::int64_t size = required1(c, "output_size");
    if (!c.flag("return_indices", false) && !always) return adaptive_max_pool1d(c.x(0), size);
    return adaptive_max_pool1d_with_indices(c.x(0), size);
}
Outputs adaptive_max_pool_3(Call& c, bool always) {
    const Size3 size = required3(c, "output_size");
    if (!c.flag("return_indices", false) && !always) return adaptive_max_pool3d(c.x(0), size);
    return adaptive_max_pool3d_with_indices(c.x(0), size);
}

void name_spatial_pools(NamedOps& ops) {
    ops["max_pool1d"] = [](Call& c) { return max_pool_1(c, false); };
    ops["max_pool1d_with_indices"] = [](Call& c) { return max_pool_1(c, true); };
    ops["max_pool3d"] = [](Call& c) { return max_pool_3(c, false); };
    ops["max_pool3d_with_indices"] = [](Call& c) { return max_pool_3(c, true); };
    ops["avg_pool1d"] = [](Call& c) {
        return avg_pool1d(c.x(0), required1(c, "kernel_size"),
                          {.stride = maybe_size1(c, "stride"),
                           .padding = size1(c, "padding", 0),
                           .ceil_mode = c.flag("ceil_mode", false),
                           .count_include_pad = c.flag("count_include_pad", true)});
    };
    ops["avg_pool3d"] = [](Call& c) {
        return avg_pool3d(c.x(0), required3(c, "kernel_size"),
                          {.stride = maybe_size3(c, "stride"),
                           .padding = size3(c, "padding", 0),
                           .ceil_mode = c.flag("ceil_mode", false),
                           .count_include_pad = c.flag("count_include_pad", true),
                           .divisor_override = c.maybe_integer("divisor_override")});
    };
    ops["adaptive_avg_pool1d"] = [](Call& c) {
        return adaptive_avg_pool1d(c.x(0), required1(c, "output_size"));
    };
    ops["adaptive_avg_pool3d"] = [](Call& c) {
        return adaptive_avg_pool3d(c.x(0), required3(c, "output_size"));
    };
    ops["adaptive_max_pool1d"] = [](Call& c) { return adaptive_max_pool_1(c, false); };
    ops["adaptive_max_pool1d_with_indices"] = [](Call& c) { return adaptive_max_pool_1(c, true); };
    ops["adaptive_max_pool3d"] = [](Call& c) { return adaptive_max_pool_3(c, false); };
    ops["adaptive_max_pool3d_with_indices"] = [](Call& c) { return adaptive_max_pool_3(c, true); };
    ops["lp_pool1d"] = [](Call& c) {
        return lp_pool1d(
            c.x(0), c.number("norm_type"), required1(c, "kernel_size"),
            {.stride = maybe_size1(c, "stride"), .ceil_mode = c.flag("ceil_mode", false)});
    };
    ops["lp_pool2d"] = [](Call& c) {
        return lp_pool2d(
            c.x(0), c.number("norm_type"), c.size2("kernel_size"),
            {.stride = c.maybe_size2("stride"), .ceil_mode = c.flag("ceil_mode", false)});
    };
    ops["lp_pool3d"] = [](Call& c) {
        return lp_pool3d(
            c.x(0), c.number("norm_type"), required3(c, "kernel_size"),
            {.stride = maybe_size3(c, "stride"), .ceil_mode = c.flag("ceil_mode", false)});
    };
}

// Returns the last n sizes of the argument output_size, or nothing if it is missing.
Axes maybe_output_size(Call& c, int n) {
    if (!c.has("output_size")) return {};
    const std::vector<std::int64_t> sizes = c.integers("output_size");
    const std::size_t count = static_cast<std::size_t>(n);
    if (sizes.size() < count) throw ValueError(str("argument output_size: expected ", n, " sizes"));
    return Dims(std::span(sizes).last(count));
}

void name_unpools(NamedOps& ops) {
    ops["max_unpool1d"] = [](Call& c) {
        MaxUnpool1dOptions options = {.stride = maybe_size1(c, "stride"),
                                      .padding = size1(c, "padding", 0)};
        if (const Axes size = maybe_output_size(c, 1)) options.output_size = (*size)[0];
        return max_unpool1d(c.x(0), c.x(1), required1(c, "kernel_size"), options);
    };
    ops["max_unpool2d"] = [](Call& c) {
        MaxUnpool2dOptions options = {.stride = c.maybe_size2("stride"),
                                      .padding = c.size2("padding", 0)};
        if (const Axes size = maybe_output_size(c, 2)) options.output_size = as_plane(*size);
        return max_unpool2d(c.x(0), c.x(1), c.size2("kernel_size"), options);
    };
    ops["max_unpool3d"] = [](Call& c) {
        MaxUnpool3dOptions options = {.stride = maybe_size3(c, "stride"),
                                      .padding = size3(c, "padding", 0)};
        if (const Axes size = maybe_output_size(c, 3)) options.output_size = as_size3(*size);
        return max_unpool3d(c.x(0), c.x(1), required3(c, "kernel_size"), options);
    };
}

}  // namespace

void add_spatial_ops(NamedOps& ops) {
    name_spatial_convolutions(ops);
    name_spatial_pools(ops);
    name_unpools(ops);
}

}  // namespace axle::tests
