// Tests that cuDNN has plans for convolutions. Needs no GPU.
#if AXLE_CUDA

#include "kernels/cuda/conv/cudnn_conv.h"
#include "tests/kernels/cuda/described_gpu.h"

namespace axle::kernels::cudnn {
namespace {

struct Case {
    std::int64_t images, channels, size, out, kernel, stride, padding;
    std::int64_t groups = 1;
};

constexpr std::int64_t kImages = 32;
// The shapes of all convolutions in LeNet, ResNet-18 and ResNet-50.
constexpr Case kLeNet[] = {{kImages, 1, 28, 6, 5, 1, 2}, {kImages, 6, 14, 16, 5, 1, 0}};
constexpr Case kResNet[] = {
    {kImages, 3, 224, 64, 7, 2, 3},
    // The 3 x 3 convolutions with stride 1 of both ResNets.
    {kImages, 64, 56, 64, 3, 1, 1},
    {kImages, 128, 28, 128, 3, 1, 1},
    {kImages, 256, 14, 256, 3, 1, 1},
    {kImages, 512, 7, 512, 3, 1, 1},
    // The convolutions in ResNet-18 that reduce the image size.
    {kImages, 64, 56, 128, 3, 2, 1},
    {kImages, 64, 56, 128, 1, 2, 0},
    {kImages, 128, 28, 256, 3, 2, 1},
    {kImages, 128, 28, 256, 1, 2, 0},
    {kImages, 256, 14, 512, 3, 2, 1},
    {kImages, 256, 14, 512, 1, 2, 0},
    // The bottlenecks of ResNet-50.
    {kImages, 64, 56, 64, 1, 1, 0},
    {kImages, 64, 56, 256, 1, 1, 0},
    {kImages, 256, 56, 64, 1, 1, 0},
    {kImages, 256, 56, 128, 1, 1, 0},
    {kImages, 128, 56, 128, 3, 2, 1},
    {kImages, 256, 56, 512, 1, 2, 0},
    {kImages, 128, 28, 512, 1, 1, 0},
    {kImages, 512, 28, 128, 1, 1, 0},
    {kImages, 512, 28, 256, 1, 1, 0},
    {kImages, 256, 28, 256, 3, 2, 1},
    {kImages, 512, 28, 1024, 1, 2, 0},
    {kImages, 256, 14, 1024, 1, 1, 0},
    {kImages, 1024, 14, 256, 1, 1, 0},
    {kImages, 1024, 14, 512, 1, 1, 0},
    {kImages, 512, 14, 512, 3, 2, 1},
    {kImages, 1024, 14, 2048, 1, 2, 0},
    {kImages, 512, 7, 2048, 1, 1, 0},
    {kImages, 2048, 7, 512, 1, 1, 0},
};

ConstView tensor(DType dtype, std::int64_t n, std::int64_t c, std::int64_t size,
                 bool channels_last) {
    ConstView v;
    v.dtype = dtype, v.ndim = 4;
    v.shape[0] = n, v.shape[1] = c, v.shape[2] = v.shape[3] = size;
    v.stride[0] = c * size * size;
    v.stride[1] = channels_last ? 1 : size * size;
    v.stride[2] = channels_last ? size * c : size;
    v.stride[3] = channels_last ? c : 1;
    return v;
}

class CudnnConvGraph : public DescribedGpu {
  protected:
    // Returns the workspace in bytes, or nullopt if cuDNN has no plan.
    std::optional<std::int64_t> plan(ConvResult result, DType dtype, const Case& c,
                                     bool channels_last, const Limits& limits,
                                     bool has_bias = false) const try {
        const std::int64_t out = (c.size + 2 * c.padding - c.kernel) / c.stride + 1;
        const ConvAxis axis = {c.stride, c.padding, 1};
        return workspace(
            conv_graph(result, tensor(dtype, c.images, c.channels, c.size, channels_last),
                       tensor(dtype, c.out, c.channels / c.groups, c.kernel, channels_last),
                       tensor(dtype, c.images, c.out, out, channels_last), {axis, axis, c.groups},
                       has_bias),
            limits);
    } catch (const UnsupportedGraph&) {
        return std::nullopt;
    }
};

constexpr ConvResult kResults[] = {ConvResult::y, ConvResult::x, ConvResult::w};

std::string describe(ConvResult result, DType dtype, const Case& c, bool channels_last) {
    return str("result ", static_cast<int>(result), ", ", dtype, channels_last ? " NHWC" : " NCHW",
               ", channels ", c.channels, " to ", c.out, ", size ", c.size, ", kernel ", c.kernel,
               ", stride ", c.stride, ", groups ", c.groups);
}

TEST_F(CudnnConvGraph, PlansEveryShapeOfResNet) {
    for (const DType dtype : {f32, f16, bf16})
        for (const bool channels_last : {false, true})
            for (const Case& c : kResNet)
                for (const ConvResult result : kResults)
                    EXPECT_TRUE(plan(result, dtype, c, channels_last,
                                     conv_limits(dtype, false, dtype != f32)))
                        << describe(result, dtype, c, channels_last);
}

TEST_F(CudnnConvGraph, PlansEveryShapeOfLeNetWithBias) {
    for (const DType dtype : {f32, f16, bf16})
        for (const Case& c : kLeNet)
            for (const ConvResult result : kResults)
                EXPECT_TRUE(plan(result, dtype, c, false, conv_limits(dtype, false, false),
                                 result == ConvResult::y))
                    << describe(result, dtype, c, false);
}

TEST_F(CudnnConvGraph, HasDeterministicPlansForShapesOfLeNetAndResNet) {
    for (const DType dtype : {f32, f16, bf16})
        for (const Case& c : {kLeNet[1], kResNet[0], kResNet[1], kResNet[5]})
            for (const ConvResult result : kResults)
                EXPECT_TRUE(plan(result, dtype, c, false, conv_limits(dtype, true, false)))
                    << describe(result, dtype, c, false);
}

TEST_F(CudnnConvGraph, PlansGroupedConvolutionsAndKernelsOfImageSize) {
    for (const DType dtype : {f32, f16, bf16}) {
        // The cases are a depthwise and a grouped convolution, and a kernel as large as the image.
        for (const Case& c : {Case{8, 64, 28, 64, 3, 1, 1, 64}, Case{8, 32, 14, 64, 3, 1, 1, 4},
                              Case{8, 64, 7, 128, 7, 1, 0}})
            for (const ConvResult result : kResults)
                EXPECT_TRUE(plan(result, dtype, c, false, conv_limits(dtype, false, true)))
                    << describe(result, dtype, c, false);
    }
    // With stride 1, 16 x 16 elements have 13 x 13 windows of 4 x 4 elements. The result has one
    // element per image and channel, so conv_graph() must pass cuDNN a stride that leaves no second
    // window.
    const ConvAxis axis = {1, 0, 1};
    EXPECT_NO_THROW(
        Plan(conv_graph(ConvResult::y, tensor(f32, 2, 3, 16, false), tensor(f32, 8, 3, 4, false),
                        tensor(f32, 2, 8, 1, false), {axis, axis, 1}),
             {nullptr, &*device_}, conv_limits(f32, false, true)));
}

TEST_F(CudnnConvGraph, RejectsInconsistentShapes) {
    const ConvAxis axis = {1, 0, 1};
    EXPECT_THROW(
        Plan(conv_graph(ConvResult::y, tensor(f32, 2, 3, 16, false), tensor(f32, 8, 3, 4, false),
                        tensor(f32, 2, 8, 9, false), {axis, axis, 1}),
             {nullptr, &*device_}, Limits()),
        UnsupportedGraph);
}

}  // namespace
}  // namespace axle::kernels::cudnn

#endif
