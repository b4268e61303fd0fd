// Usage: bench_gpu_kernels [--only TEXT | --check]
//
// Measures the GPU kernels without the overhead of tensors or autograd, and prints a line of JSON
// for each kernel. The first line has the reference rates, of a large copy and of a large product
// of bf16 matrices. The lines of kernels also have the speed relative to one of these rates. Shapes
// are taken from GPT-2 and ResNet-50. The last rows measure the host time of an op. --only TEXT
// measures only the rows whose text "op dtype shape" contains TEXT. Without a GPU, prints a message
// and exits with 0.
//
// --check prints a line for each of NVIDIA's libraries, and runs one call of each kind of operation
// that these libraries compute. If a library cannot be used, the log has a warning. Without a GPU,
// --check exits with 3.
#include <chrono>
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bench/gpu_products.h"
#include "bench/gpu_row.h"
#include "bench/gpu_streams.h"
#include "core/autograd/autograd.h"
#include "core/cuda.h"
#include "core/float8.h"
#include "core/ops.h"
#include "kernels/ops/copy.h"

namespace axle::bench {

// Measures the host time of an op on tiny tensors. Queues ops without waiting for the GPU, and
// limits their number so that the GPU's queue never fills.
template <class F>
void run_host_cost(const GpuTable& table, const char* op, F&& call) {
    constexpr int kCalls = 400;
    const GpuRow row = {.op = str("host ", op), .dtype = f32, .shape = "8x64"};
    if (!table.wants(row)) return;
    std::vector<double> times;
    for (int run = 0; run < 20; ++run) {
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < kCalls; ++i) call();
        const std::chrono::duration<double, std::milli> took =
            std::chrono::steady_clock::now() - start;
        times.push_back(took.count() / kCalls);
        cuda::synchronize();
    }
    std::ranges::sort(times);
    const nlohmann::json line = {{"op", row.op},
                                 {"dtype", name_of(row.dtype)},
                                 {"shape", row.shape},
                                 {"ms", times[times.size() / 2]}};
    std::cout << line.dump() << std::endl;
}

inline void run_host_costs(const GpuTable& table) {
    const Tensor a = operand({8, 64}), b = operand({8, 64}), w = operand({64, 64});
    const Tensor leaf = operand({8, 64}).set_requires_grad();
    {
        const NoGrad scope;
        run_host_cost(table, "empty", [] { room({8, 64}); });
        run_host_cost(table, "add", [&] { add(a, b); });
        run_host_cost(table, "matmul", [&] { matmul(a, w); });
    }
    run_host_cost(table, "add recorded", [&] { add(leaf, b); });
}

// Prints the libraries, then runs operations that should use them.
inline void check_libraries() {
    for (const auto& [title, found] : cuda::find_libraries()) {
        const bool missing = found.starts_with("not found");
        nlohmann::json line = {{"library", title}, {"found", !missing}};
        line[missing ? "error" : "path"] = found;
        std::cout << line.dump() << std::endl;
    }
    const auto probe = [](const char* name, auto&& call) {
        nlohmann::json line = {{"probe", name}};
        try {
            call();
            cuda::synchronize();
        } catch (const Error& error) {
            line["error"] = error.what();
        }
        std::cout << line.dump() << std::endl;
    };
    const auto leaf = [](const Shape& shape) { return operand(shape, bf16).set_requires_grad(); };
    probe("matmul", [] { matmul(operand({256, 256}, bf16), operand({256, 256}, bf16)); });
    probe("linear", [&] {
        sum(linear(leaf({256, 256}), leaf({512, 256}), leaf({512}))).backward();
    });
    if (has_float8(kGpu))
        probe("float8_matmul", [] {
            const Float8Tensor x = to_float8(operand({256, 256}), DType::f8_e4m3);
            float8_matmul(x, x, {.dtype = bf16});
        });
    for (const std::int64_t width : {64, 128})
        probe("scaled_dot_product_attention", [&] {
            const Shape shape = {2, 12, 1024, width};
            const Tensor y = scaled_dot_product_attention(leaf(shape), leaf(shape), leaf(shape),
                                                          {.causal = true});
            sum(y).backward();
        });
    probe("conv2d", [&] { sum(conv2d(leaf({8, 64, 56, 56}), leaf({64, 64, 3, 3}))).backward(); });
    probe("avg_pool2d", [] { avg_pool2d(operand({8, 64, 56, 56}, bf16), 2); });
}

inline void run_table(const std::string& only) {
    GpuTable table(only);
    constexpr std::int64_t kCopied = std::int64_t{1} << 28;
    GpuRow copy = {.op = "copy",
                   .dtype = f32,
                   .shape = std::to_string(kCopied),
                   .prepare = []() -> Call {
                       const Tensor x = operand({kCopied});
                       Tensor y = room({kCopied});
                       return [=]() mutable { kernels::copy(gpu(), x.view(), y.view()); };
                   },
                   .bytes = 8.0 * kCopied};
    table.set_roof(copy, product_row("matmul", 8192, 8192, 8192, bf16, "NT"));
    for (const DType dtype : {bf16, f32}) {
        run_elementwise(table, dtype);
        run_norms(table, dtype, 16384, 768), run_norms(table, dtype, 16384, 4096);
        run_cross_entropy(table, dtype);
    }
    run_embedding(table);
    run_optimizer(table);
    run_products(table);
    run_attention(table, bf16, 16, 12, 1024, 64), run_attention(table, f16, 16, 12, 1024, 64);
    run_attention(table, bf16, 4, 16, 4096, 128), run_attention(table, f32, 16, 12, 1024, 64);
    run_convolutions(table);
    run_host_costs(table);
}

}  // namespace axle::bench

int main(int argc, char** argv) {
    try {
        std::string only;
        const bool checks = argc == 2 && std::string_view(argv[1]) == "--check";
        for (int i = 1; i < argc && !checks; i += 2) {
            if (std::string_view(argv[i]) != "--only" || i + 1 == argc)
                throw std::invalid_argument("usage: bench_gpu_kernels [--only TEXT | --check]");
            only = argv[i + 1];
        }
        if (!axle::cuda::is_available()) {
            std::cout << "no GPU: " << axle::cuda::why_unavailable() << '\n';
            return checks ? 3 : 0;
        }
#if AXLE_CUDA
        if (checks) {
            axle::bench::check_libraries();
            return 0;
        }
        axle::bench::run_table(only);
#endif
    } catch (const std::exception& error) {
        std::cerr << "bench_gpu_kernels: " << error.what() << '\n';
        return 1;
    }
    return 0;
}
