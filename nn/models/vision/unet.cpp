#include "nn/models/vision/unet.h"

#include <cmath>

#include "core/autograd/autograd.h"
#include "nn/models/pretrained.h"

namespace axle::nn {
namespace {

const UNetConfig& checked_unet(const UNetConfig& config) {
    constexpr const char* kWho = "UNet";
    check_size(kWho, "in_channels", config.in_channels);
    check_size(kWho, "out_channels", config.out_channels);
    check_size(kWho, "layers_per_block", config.layers_per_block);
    check_size(kWho, "norm_num_groups", config.norm_num_groups);
    check_size(kWho, "attention_head_dim", config.attention_head_dim.value_or(1));
    check_size(kWho, "num_class_embeds", config.num_class_embeds.value_or(1));
    check_positive(kWho, "norm_eps", config.norm_eps);
    const std::size_t resolutions = config.block_out_channels.size();
    if (resolutions == 0 || config.attention.size() != resolutions)
        throw ValueError(str(kWho, ": block_out_channels and attention must have the same number ",
                             "of elements, at least one: block_out_channels has ", resolutions,
                             ", attention has ", config.attention.size()));
    for (std::size_t i = 0; i < resolutions; ++i) {
        const std::int64_t channels = config.block_out_channels[i];
        check_size(kWho, str("block_out_channels[", i, "]").c_str(), channels);
        if (channels % config.norm_num_groups != 0)
            throw ValueError(str(kWho, ": norm_num_groups ", config.norm_num_groups,
                                 " must divide block_out_channels[", i, "]: ", channels));
        const bool attends = config.attention[i] || i + 1 == resolutions;
        if (attends && channels % config.attention_head_dim.value_or(channels) != 0)
            throw ValueError(str(kWho, ": attention_head_dim ", *config.attention_head_dim,
                                 " must divide block_out_channels[", i, "]: ", channels));
    }
    if (config.block_out_channels[0] % 2 != 0)
        throw ValueError(str(kWho, ": block_out_channels[0] must be even, for cosines and sines: ",
                             config.block_out_channels[0]));
    return config;
}

std::int64_t time_width(const UNetConfig& config) { return 4 * config.block_out_channels.front(); }

Conv2d conv3x3(std::int64_t in, std::int64_t out, std::int64_t stride = 1) {
    return Conv2d(in, out, 3, {.stride = stride, .padding = 1});
}

GroupNorm group_norm_of(const UNetConfig& config, std::int64_t channels) {
    return GroupNorm(config.norm_num_groups, channels, {.eps = config.norm_eps});
}

}  // namespace

Tensor timestep_embedding(const Tensor& times, std::int64_t size, bool flip_sin_to_cos,
                          double freq_shift, DType dtype) {
    if (times.dim() != 1)
        throw ShapeError(str("timestep_embedding: times must be [N]: they are ", times.shape()));
    const double half = static_cast<double>(size) / 2;
    if (size < 1 || size % 2 != 0 || half == freq_shift)
        throw ValueError(str("timestep_embedding: size must be positive and even, and size / 2 ",
                             "must differ from freq_shift: size ", size, ", freq_shift ",
                             freq_shift));
    const NoGrad no_grad;
    const DType wide = dtype == f64 ? f64 : f32;
    const Tensor steps = arange(size / 2, {.dtype = wide, .device = times.device()});
    const Tensor angles = times.to(wide).unsqueeze(1) *
                          exp(steps * (-std::log(10000.0) / (half - freq_shift))).unsqueeze(0);
    const Tensor sines = sin(angles), cosines = cos(angles);
    return cat(flip_sin_to_cos ? std::vector{cosines, sines} : std::vector{sines, cosines}, 1)
        .to(dtype);
}

UNetResnet::UNetResnet(const UNetConfig& config, std::int64_t in, std::int64_t out)
    : norm1(group_norm_of(config, in)),
      conv1(conv3x3(in, out)),
      time_emb_proj(time_width(config), out),
      norm2(group_norm_of(config, out)),
      dropout(config.dropout),
      conv2(conv3x3(out, out)) {
    if (in != out) conv_shortcut.emplace(in, out, 1);
}

Tensor UNetResnet::forward(const Tensor& x, const Tensor& time) {
    const Tensor shift = time_emb_proj(silu(time)).unsqueeze(-1).unsqueeze(-1);
    const Tensor y = conv1(silu(norm1(x))) + shift;
    return (conv_shortcut ? (*conv_shortcut)(x) : x) + conv2(dropout(silu(norm2(y))));
}

void UNetResnet::visit(Visitor& v) {
    v("norm1", norm1), v("conv1", conv1), v("time_emb_proj", time_emb_proj), v("norm2", norm2);
    v("dropout", dropout), v("conv2", conv2);
    if (conv_shortcut) v("conv_shortcut", *conv_shortcut);
}

UNetAttention::UNetAttention(const UNetConfig& config, std::int64_t channels)
    : group_norm(group_norm_of(config, channels)),
      to_q(channels, channels),
      to_k(channels, channels),
      to_v(channels, channels),
      to_out(channels, channels),
      head_size(config.attention_head_dim.value_or(channels)) {}

Tensor UNetAttention::forward(const Tensor& x) {
    const auto heads = [&](const Tensor& y) {
        return y.reshape({y.size(0), y.size(1), -1, head_size}).transpose(1, 2);
    };
    const Tensor pixels = group_norm(x).flatten(2).transpose(1, 2);  // [N, H W, channels]
    const Tensor y =
        scaled_dot_product_attention(heads(to_q(pixels)), heads(to_k(pixels)), heads(to_v(pixels)));
    const Tensor out = to_out(y.transpose(1, 2).reshape(pixels.shape()));
    return out.transpose(1, 2).reshape(x.shape()) + x;
}

UNetDownBlock::UNetDownBlock(const UNetConfig& config, std::int64_t in, std::int64_t out,
                             bool attention, bool is_last) {
    for (std::int64_t i = 0; i < config.layers_per_block; ++i) {
        resnets.push_back(UNetResnet(config, i == 0 ? in : out, out));
        if (attention) attentions.push_back(UNetAttention(config, out));
    }
    if (!is_last) downsampler.emplace(conv3x3(out, out, 2));
}

std::vector<Tensor> UNetDownBlock::forward(Tensor x, const Tensor& time) {
    std::vector<Tensor> outputs;
    for (std::size_t i = 0; i < resnets.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        x = resnets[at](x, time);
        if (i < attentions.size()) x = attentions[at](x);
        outputs.push_back(x);
    }
    if (downsampler) outputs.push_back((*downsampler)(x));
    return outputs;
}

void UNetDownBlock::visit(Visitor& v) {
    v("resnets", resnets), v("attentions", attentions);
    if (downsampler) v("downsamplers.0.conv", *downsampler);
}

UNetMidBlock::UNetMidBlock(const UNetConfig& config)
    : first(config, config.block_out_channels.back(), config.block_out_channels.back()),
      attention(config, config.block_out_channels.back()),
      second(config, config.block_out_channels.back(), config.block_out_channels.back()) {}

Tensor UNetMidBlock::forward(const Tensor& x, const Tensor& time) {
    return second(attention(first(x, time)), time);
}

UNetUpBlock::UNetUpBlock(const UNetConfig& config, std::int64_t in, std::int64_t out,
                         std::int64_t skip, bool attention, bool is_last) {
    for (std::int64_t i = 0; i <= config.layers_per_block; ++i) {
        const std::int64_t skipped = i == config.layers_per_block ? skip : out;
        resnets.push_back(UNetResnet(config, (i == 0 ? in : out) + skipped, out));
        if (attention) attentions.push_back(UNetAttention(config, out));
    }
    if (!is_last) upsampler.emplace(conv3x3(out, out));
}

Tensor UNetUpBlock::forward(Tensor x, const Tensor& time, const std::vector<Tensor>& skips) {
    for (std::size_t i = 0; i < resnets.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        x = resnets[at](cat({x, skips[skips.size() - 1 - i]}, 1), time);
        if (i < attentions.size()) x = attentions[at](x);
    }
    return upsampler ? (*upsampler)(interpolate(x, {.scale_factor = 2})) : x;
}

void UNetUpBlock::visit(Visitor& v) {
    v("resnets", resnets), v("attentions", attentions);
    if (upsampler) v("upsamplers.0.conv", *upsampler);
}

UNet::UNet(const UNetConfig& given)
    : config(checked_unet(given)),
      conv_in(conv3x3(config.in_channels, config.block_out_channels.front())),
      time_linear_1(config.block_out_channels.front(), time_width(config)),
      time_linear_2(time_width(config), time_width(config)),
      mid_block(config),
      conv_norm_out(group_norm_of(config, config.block_out_channels.front())),
      conv_out(conv3x3(config.block_out_channels.front(), config.out_channels)) {
    if (config.num_class_embeds)
        class_embedding.emplace(*config.num_class_embeds, time_width(config));
    const std::vector<std::int64_t>& channels = config.block_out_channels;
    const std::size_t count = channels.size();
    for (std::size_t i = 0; i < count; ++i)
        down_blocks.push_back(UNetDownBlock(config, channels[i == 0 ? 0 : i - 1], channels[i],
                                            config.attention[i], i + 1 == count));
    for (std::size_t i = count; i-- > 0;)
        up_blocks.push_back(UNetUpBlock(config, channels[i + 1 == count ? i : i + 1], channels[i],
                                        channels[i == 0 ? 0 : i - 1], config.attention[i], i == 0));
}

Tensor UNet::forward(const Tensor& x, const Tensor& times, const Tensor& classes) {
    const std::int64_t multiple = std::int64_t{1} << (config.block_out_channels.size() - 1);
    if (x.dim() != 4 || x.size(1) != config.in_channels || x.size(2) % multiple != 0 ||
        x.size(3) % multiple != 0)
        throw ShapeError(str("UNet: x must be [N, ", config.in_channels, ", H, W], where H and W ",
                             "are multiples of ", multiple, ": x is ", x.shape()));
    if (times.dim() != 1 || (times.size(0) != 1 && times.size(0) != x.size(0)))
        throw ShapeError(
            str("UNet: times must be [1] or [", x.size(0), "]: they are ", times.shape()));
    if (classes.defined() != class_embedding.has_value())
        throw ValueError(
            classes.defined()
                ? "UNet: the model has no classes (num_class_embeds): classes must be undefined"
                : "UNet: the model needs classes (num_class_embeds): classes are undefined");
    const Tensor sinusoids =
        timestep_embedding(times, config.block_out_channels.front(), config.flip_sin_to_cos,
                           config.freq_shift, conv_in.weight.dtype());
    Tensor time = time_linear_2(time_linear_1(sinusoids, Activation::silu))
                      .expand({x.size(0), time_width(config)});
    if (class_embedding) time = time + (*class_embedding)(classes);
    std::vector<Tensor> skips = {conv_in(x)};
    for (UNetDownBlock& block : down_blocks) {
        const std::vector<Tensor> outputs = block(skips.back(), time);
        skips.insert(skips.end(), outputs.begin(), outputs.end());
    }
    Tensor y = mid_block(skips.back(), time);
    for (UNetUpBlock& block : up_blocks) {
        y = block(y, time, skips);
        skips.resize(skips.size() - block.resnets.size());
    }
    return conv_out(silu(conv_norm_out(y)));
}

void UNet::visit(Visitor& v) {
    v("conv_in", conv_in);
    v("time_embedding.linear_1", time_linear_1), v("time_embedding.linear_2", time_linear_2);
    if (class_embedding) v("class_embedding", *class_embedding);
    v("down_blocks", down_blocks), v("mid_block", mid_block), v("up_blocks", up_blocks);
    v("conv_norm_out", conv_norm_out), v("conv_out", conv_out);
}

}  // namespace axle::nn
