// Tests metrics on a GPU. An update copies nothing to the host, and compute() throws errors that
// kernels report.
#include "accel/metrics.h"

#include <cmath>

#include "core/cuda/graph.h"
#include "core/ops.h"
#include "tests/close.h"
#include "tests/cuda/gpu.h"

namespace axle::tests {
namespace {

class MetricsOnGpu : public GpuTest {};

// The test captures the update, because reads of device memory throw during a capture.
TEST_F(MetricsOnGpu, UpdateWithoutReadingDeviceMemory) {
    Accelerator accelerator;
    accel::Mean mean(accelerator), weighted(accelerator);
    accel::Perplexity perplexity(accelerator);
    accel::Accuracy first(accelerator), top(accelerator, {.top_k = 2});
    accel::ConfusionMatrix confusion(accelerator, 3);
    accel::F1 f1(accelerator, 3);
    const Tensor scores = tensor({2.0, 1, 0, 0, 1, 2, 0, 2, 2, 9, 9, 9}, {4, 3}).to(kGpu);
    const Tensor labels = tensor(std::vector<std::int64_t>{0, 1, -100, 7}, {4}).to(kGpu);
    const Tensor weights = tensor({0.0, 1, 1, 4}, {4}).to(kGpu);
    const Tensor mask = ne(tensor({1, 1, 1, 0}, {4}).to(kGpu), 0);
    const auto update = [&] {
        mean.update(scores, {}, 2);
        mean.update(scores.max(), 3);
        weighted.update(scores, weights, mask);
        perplexity.update(scores, labels, 3);
        first.update(scores, labels, mask);
        top.update(scores, labels, mask);
        confusion.update(scores, labels, mask);
        f1.update(scores.argmax(-1), labels, 3);
    };
    update();  // loads the kernels
    Graph graph;
    {
        GraphCapture capture(graph);
        update();
        capture.end();
    }
    graph.replay();
    EXPECT_NEAR(mean.compute(), 33.0 / 9, 1e-12);
    EXPECT_EQ(weighted.compute(), 7.0 / 6);
    const double losses = std::log(std::exp(0) + std::exp(1) + std::exp(2));
    EXPECT_NEAR(std::log(perplexity.compute()), (2 * losses - 3) / 2, 1e-6);
    EXPECT_EQ(first.compute(), 0.5);
    EXPECT_EQ(top.compute(), 1);
    EXPECT_EQ(confusion.compute().to_vector(), (std::vector<double>{2, 0, 0, 0, 0, 2, 0, 0, 0}));
    EXPECT_EQ(f1.scores().recall, 1.0 / 3);
}

TEST_F(MetricsOnGpu, ThrowKernelErrorsInCompute) {
    Accelerator accelerator;
    accel::ConfusionMatrix confusion(accelerator, 3);
    const Tensor labels = tensor(std::vector<std::int64_t>{0, 3}, {2}).to(kGpu);
    confusion.update(zeros({2, 3}, {.device = kGpu}), labels);
    expect_error<IndexError>({"", "out of range: 3", "size 3"}, [&] { confusion.compute(); });
}

}  // namespace
}  // namespace axle::tests
