// UNet: a denoising network for diffusion models (Ho et al., arXiv:2006.11239): residual blocks
// with a time embedding, attention, and down and up sampling. Parameter names match UNet2DModel of
// diffusers, so that weights can be exchanged in both directions. In this file, N is the number of
// images, C a number of channels, and E = 4 * block_out_channels[0] the width of the time
// embedding.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "nn/layers/container.h"
#include "nn/layers/conv.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"

namespace axle::nn {

struct UNetConfig {
    std::int64_t in_channels = 3;
    std::int64_t out_channels = 3;
    // The channels of each resolution. Each resolution after the first has half the height and
    // width of the previous resolution.
    std::vector<std::int64_t> block_out_channels = {224, 448, 672, 896};
    // Whether the blocks of each resolution have attention. In diffusers, the types of blocks are
    // named instead: AttnDownBlock2D and AttnUpBlock2D have attention, DownBlock2D and UpBlock2D do
    // not.
    std::vector<bool> attention = {false, true, true, true};
    std::int64_t layers_per_block = 2;  // residual blocks of a down block; an up block has one more
    // The size of attention heads, or nullopt for one head with all channels.
    std::optional<std::int64_t> attention_head_dim = 8;
    std::int64_t norm_num_groups = 32;
    double norm_eps = 1e-5;
    double dropout = 0;
    // Whether cosines precede sines in the time embedding, and the shift of its frequencies
    // (timestep_embedding()).
    bool flip_sin_to_cos = true;
    double freq_shift = 0;
    std::optional<std::int64_t> num_class_embeds = {};  // the number of classes, if any
};

// Returns the sinusoidal embedding [N, size] of times [N] in the given dtype: size / 2 cosines,
// then size / 2 sines, or the sines first if flip_sin_to_cos is false. The cosine i and the sine i
// have the frequency 10000^(-i / (size / 2 - freq_shift)). Throws ShapeError unless times are [N],
// and ValueError unless size is positive and even, and size / 2 differs from freq_shift.
Tensor timestep_embedding(const Tensor& times, std::int64_t size, bool flip_sin_to_cos = true,
                          double freq_shift = 0, DType dtype = f32);

struct UNetResnet : Model<UNetResnet> {
    UNetResnet(const UNetConfig& config, std::int64_t in, std::int64_t out);
    // Maps x [N, in, H, W] and the time embedding [N, E] to [N, out, H, W].
    Tensor forward(const Tensor& x, const Tensor& time);
    void visit(Visitor& v) override;

    GroupNorm norm1;
    Conv2d conv1;
    Linear time_emb_proj;
    GroupNorm norm2;
    Dropout dropout;
    Conv2d conv2;
    std::optional<Conv2d> conv_shortcut;  // only if the numbers of channels differ
};

// Self-attention of the pixels of an image, added to its input.
struct UNetAttention : Model<UNetAttention> {
    UNetAttention(const UNetConfig& config, std::int64_t channels);
    Tensor forward(const Tensor& x);  // maps [N, channels, H, W] to the same shape
    void visit(Visitor& v) override {
        v("group_norm", group_norm), v("to_q", to_q), v("to_k", to_k), v("to_v", to_v);
        v("to_out.0", to_out);
    }

    GroupNorm group_norm;
    Linear to_q, to_k, to_v, to_out;
    std::int64_t head_size;
};

struct UNetDownBlock : Model<UNetDownBlock> {
    UNetDownBlock(const UNetConfig& config, std::int64_t in, std::int64_t out, bool attention,
                  bool is_last);
    // Returns the outputs of all residual blocks, after their attention if there is any, and of the
    // down sampling, except in the last block, which has none. The last output is the output of the
    // block.
    std::vector<Tensor> forward(Tensor x, const Tensor& time);
    void visit(Visitor& v) override;

    ModuleList<UNetResnet> resnets;
    ModuleList<UNetAttention> attentions;  // one for each residual block, or empty
    std::optional<Conv2d> downsampler;     // absent in the last block
};

struct UNetMidBlock : Model<UNetMidBlock> {
    explicit UNetMidBlock(const UNetConfig& config);
    Tensor forward(const Tensor& x, const Tensor& time);
    void visit(Visitor& v) override {
        v("resnets.0", first), v("attentions.0", attention), v("resnets.1", second);
    }

    UNetResnet first;
    UNetAttention attention;
    UNetResnet second;
};

struct UNetUpBlock : Model<UNetUpBlock> {
    // `in` is the number of channels of x, `out` of the result, and `skip` of the element of
    // `skips` that the last residual block uses (see forward()).
    UNetUpBlock(const UNetConfig& config, std::int64_t in, std::int64_t out, std::int64_t skip,
                bool attention, bool is_last);
    // `skips` are the outputs of UNet::conv_in and of the down blocks that are not used yet. Each
    // residual block uses one of them, from the last backwards.
    Tensor forward(Tensor x, const Tensor& time, const std::vector<Tensor>& skips);
    void visit(Visitor& v) override;

    ModuleList<UNetResnet> resnets;
    ModuleList<UNetAttention> attentions;
    std::optional<Conv2d> upsampler;  // absent in the last block
};

struct UNet : Model<UNet> {
    // Initializes the weights as PyTorch's layers do. Throws ValueError unless all sizes are
    // positive and below 2^31, there is at least one resolution, and `attention` has one element
    // for each resolution. norm_num_groups must divide each element of block_out_channels,
    // attention_head_dim must divide the elements with attention and the last element, and the
    // first element must be even. norm_eps must be positive and finite, and dropout in [0, 1].
    explicit UNet(const UNetConfig& config);

    // Returns the prediction [N, out_channels, H, W] for noisy images x [N, in_channels, H, W] at
    // the times [N] or [1] (integers or floating). H and W are multiples of 2^(resolutions - 1). If
    // the model has classes, `classes` [N] are their indices (i64). Throws ShapeError for other
    // shapes, ValueError if only one of the model and the call has classes or if freq_shift is
    // block_out_channels[0] / 2, and the errors of axle::embedding() for classes.
    Tensor forward(const Tensor& x, const Tensor& times, const Tensor& classes = {});
    void visit(Visitor& v) override;
    std::vector<std::string> no_split_modules() const override {
        return {"UNetDownBlock", "UNetMidBlock", "UNetUpBlock"};
    }

    UNetConfig config;
    Conv2d conv_in;
    Linear time_linear_1, time_linear_2;  // time_embedding.linear_1 and linear_2
    std::optional<Embedding> class_embedding;
    ModuleList<UNetDownBlock> down_blocks;
    UNetMidBlock mid_block;
    ModuleList<UNetUpBlock> up_blocks;
    GroupNorm conv_norm_out;
    Conv2d conv_out;
};

}  // namespace axle::nn
