// Checks that the op cases and some other calls launch every kernel in kernels/cuda/. The simulated
// GPU records the source lines of launches.
#if AXLE_SIMULATED_GPU

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "core/float8.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/quantization/quantized_weight.h"
#include "core/random.h"
#include "kernels/cuda/attention/cudnn_scores.h"
#include "kernels/ops/step_state.h"
#include "optim/adam.h"
#include "optim/clip.h"
#include "optim/grad_scaler.h"
#include "tests/core/ops/every_op.h"
#include "tests/cuda/gpu.h"
#include "tests/simulator/simulator.h"

namespace axle::tests {
namespace {

namespace fs = std::filesystem;

// The first and the last source line of a call of start().
struct Call {
    std::string file;
    std::size_t first, last;
};
std::vector<Call> calls_of_start() {
    std::vector<Call> calls;
    for (const auto& entry : fs::recursive_directory_iterator(AXLE_TESTS_DIR "/../kernels/cuda")) {
        if (!entry.is_regular_file()) continue;
        const std::string text = read_file(entry.path().string());
        const auto line_of = [&](std::size_t at) {
            return 1 + static_cast<std::size_t>(std::count(
                           text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
        };
        for (std::size_t at = 0; (at = text.find("start(on,", at)) != std::string::npos;) {
            const std::size_t begin = at;
            int depth = 0;
            for (at = text.find('(', at);; ++at) {
                if (text[at] == '(') ++depth;
                if (text[at] == ')' && --depth == 0) break;
            }
            calls.push_back({entry.path().filename().string(), line_of(begin), line_of(at)});
        }
    }
    return calls;
}

void run_cases() {
    for (const OpCase& c : op_cases()) {
        for (const Row& row : c.rows) {
            if (row.empty()) continue;
            for (const DType dtype : {f64, f32, f16, bf16})
                run(c, row, on_gpu(make_inputs(c, row, dtype)));
            if (!c.strided) continue;
            for (const Layout layout : {Layout::transposed, Layout::sliced, Layout::expanded}) {
                std::vector<Tensor> x = make_inputs(c, row, f32);
                for (Tensor& t : x) t = with_layout(t, layout);
                run(c, row, on_gpu(x));
            }
        }
    }
    for (const OpCase& c : op_cases())
        for (const Row& row : c.gpu_rows) run(c, row, on_gpu(make_inputs(c, row, f32)));
}

// Launches kernels that prepare the inputs and correct the results of cuDNN's attention. On the
// simulated GPU there is no cuDNN, so attention itself does not launch them.
void run_kernels_around_cudnn() {
    const Tensor mask = ones({1, 1, 2, 3}, {boolean, kGpu});
    Tensor out = ones({1, 1, 2, 8}, {bf16, kGpu}), lse = ones({1, 1, 2}, {f32, kGpu}),
           state = zeros({2}, {i64, kGpu});
    kernels::Cuda& on = cuda_context(kGpu.index);
    kernels::cudnn::clear_rows_without_keys(on, mask.view(), false, out.view(), lse.view());
    auto* const to = state.data<std::int64_t>();
    kernels::cudnn::write_random_state(on, {}, to, to + 1);
}

void run_float8() {
    const Float8Tensor x = to_float8(rand({16, 16}, {.device = kGpu}), DType::f8_e4m3);
    float8_values(x.values);
    Tensor history = zeros({2, 3}, {f32, kGpu}), scales = ones({3, 2}, {f32, kGpu});
    update_float8_scales({.dtypes = {DType::f8_e4m3, DType::f8_e4m3, DType::f8_e5m2}}, history,
                         scales);
}

void run_remaining_kernels() {
    for (const DType dtype : {i64, i32, u8}) {
        const Tensor x = ones({3, 3}, {dtype, kGpu});
        matmul(x, x);
    }
    arange(0, 5, 0.5, {f32, kGpu});
    multinomial(rand({2000}, {.device = kGpu}), 1500);
    const Tensor parameter = rand({100}, {.device = kGpu}).set_requires_grad();
    sum(parameter * parameter).backward();
    optim::clip_grad_norm_({parameter}, 1);
    optim::clip_grad_value_({parameter}, 1);
    optim::AdamW adamw({parameter});
    optim::GradScaler scaler;
    scaler.scale(sum(parameter * parameter)).backward();
    adamw.set_rates(full({1, 1, 2}, 0.5, {f64, kGpu}), zeros({}, {i64, kGpu}));
    scaler.step(adamw);
    scaler.update();
    Tensor count = zeros({}, {i64, kGpu});
    launch(kGpu, [&](auto& on) { kernels::count_unless(on, nullptr, count.data<std::int64_t>()); });
    run_kernels_around_cudnn();
    run_float8();
    dequantize_weight(quantize_weight(rand({16, 16}, {.device = kGpu})), f32);
}

class GpuCoverage : public GpuTest {};

TEST_F(GpuCoverage, IncludesEveryKernelLaunch) {
    run_cases();
    run_remaining_kernels();
    cuda::synchronize();
    const std::set<std::string> started = kernels::simulator::started();
    const std::vector<Call> calls = calls_of_start();
    EXPECT_GT(calls.size(), 60u);
    std::string missing;
    for (const Call& call : calls) {
        bool reached = false;
        for (std::size_t line = call.first; line <= call.last; ++line)
            reached |= started.contains(str(call.file, ":", line));
        if (!reached) missing += str("\n  kernels/cuda/", call.file, ":", call.first);
    }
    EXPECT_EQ(missing, "");
}

}  // namespace
}  // namespace axle::tests

#endif
