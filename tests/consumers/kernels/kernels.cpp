// Calls kernels on memory of this program, without tensors, and compares them with loops.
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <iostream>
#include <vector>

#include <axle/kernels/exec.h>
#include <axle/kernels/ops/conv.h>
#include <axle/kernels/ops/matmul.h>
#include <axle/kernels/ops/softmax.h>
#include <axle/kernels/view.h>

// Returns a row-major view of `data`.
axle::View view_of(std::vector<float>& data, std::initializer_list<std::int64_t> shape) {
    axle::View view;
    view.data = data.data();
    view.dtype = axle::f32;
    for (const std::int64_t size : shape) view.shape[view.ndim++] = size;
    std::int64_t stride = 1;
    for (int d = view.ndim - 1; d >= 0; --d) {
        view.stride[d] = stride;
        stride *= view.shape[d];
    }
    return view;
}

// Returns n different numbers between -1 and 1.
std::vector<float> numbers(std::int64_t n) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < n; ++i) values.push_back(std::sin(static_cast<float>(3 * i + 1)));
    return values;
}

// Returns the largest absolute difference between elements of two lists.
double difference(const std::vector<float>& a, const std::vector<double>& b) {
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) largest = std::fmax(largest, std::abs(a[i] - b[i]));
    return largest;
}

double matmul_error(axle::kernels::Cpu& cpu) {
    constexpr std::int64_t kM = 33, kN = 20, kK = 41;
    std::vector<float> a = numbers(kM * kK), b = numbers(kK * kN), c(kM * kN);
    axle::kernels::matmul(cpu, view_of(a, {kM, kK}), view_of(b, {kK, kN}), view_of(c, {kM, kN}));
    std::vector<double> expected(kM * kN);
    for (std::int64_t m = 0; m < kM; ++m)
        for (std::int64_t n = 0; n < kN; ++n)
            for (std::int64_t k = 0; k < kK; ++k)
                expected[m * kN + n] += double(a[m * kK + k]) * b[k * kN + n];
    return difference(c, expected);
}

double softmax_error(axle::kernels::Cpu& cpu) {
    constexpr std::int64_t kRows = 7, kWidth = 50;
    std::vector<float> x = numbers(kRows * kWidth), y(kRows * kWidth);
    axle::kernels::softmax(cpu, view_of(x, {kRows, kWidth}), view_of(y, {kRows, kWidth}));
    std::vector<double> expected(kRows * kWidth);
    for (std::int64_t r = 0; r < kRows; ++r) {
        double sum = 0;
        for (std::int64_t i = 0; i < kWidth; ++i) sum += std::exp(double(x[r * kWidth + i]));
        for (std::int64_t i = 0; i < kWidth; ++i)
            expected[r * kWidth + i] = std::exp(double(x[r * kWidth + i])) / sum;
    }
    return difference(y, expected);
}

double conv2d_error(axle::kernels::Cpu& cpu) {
    constexpr std::int64_t kIn = 3, kOut = 4, kSize = 9, kKernel = 3;  // stride 1, padding 1
    std::vector<float> x = numbers(kIn * kSize * kSize),
                       w = numbers(kOut * kIn * kKernel * kKernel);
    std::vector<float> y(kOut * kSize * kSize);
    const axle::kernels::ConvAxis axis = {.stride = 1, .padding = 1};
    axle::kernels::conv2d(cpu, view_of(x, {1, kIn, kSize, kSize}),
                          view_of(w, {kOut, kIn, kKernel, kKernel}), {}, {.h = axis, .w = axis},
                          view_of(y, {1, kOut, kSize, kSize}));
    std::vector<double> expected(kOut * kSize * kSize);
    for (std::int64_t o = 0; o < kOut; ++o)
        for (std::int64_t r = 0; r < kSize; ++r)
            for (std::int64_t q = 0; q < kSize; ++q)
                for (std::int64_t c = 0; c < kIn; ++c)
                    for (std::int64_t i = 0; i < kKernel; ++i)
                        for (std::int64_t j = 0; j < kKernel; ++j) {
                            const std::int64_t h = r + i - 1, v = q + j - 1;
                            if (h < 0 || v < 0 || h >= kSize || v >= kSize) continue;
                            expected[(o * kSize + r) * kSize + q] +=
                                double(w[((o * kIn + c) * kKernel + i) * kKernel + j]) *
                                x[(c * kSize + h) * kSize + v];
                        }
    return difference(y, expected);
}

int main() {
    axle::kernels::Cpu cpu;
    const double matmul = matmul_error(cpu), softmax = softmax_error(cpu), conv = conv2d_error(cpu);
    std::cout << "largest errors: matmul " << matmul << ", softmax " << softmax << ", conv2d "
              << conv << '\n';
    return matmul < 1e-4 && softmax < 1e-6 && conv < 1e-4 ? 0 : 1;
}
