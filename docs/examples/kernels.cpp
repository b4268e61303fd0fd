// Calls a kernel on memory of this program, without tensors.
#include <cstdint>
#include <iostream>
#include <vector>

#include <axle/kernels/exec.h>
#include <axle/kernels/ops/matmul.h>
#include <axle/kernels/thread_pool.h>

// [call]
// Returns a view of row-major floats [rows, width].
axle::View matrix(std::vector<float>& values, std::int64_t rows, std::int64_t width) {
    axle::View view;
    view.data = values.data();
    view.dtype = axle::f32;
    view.ndim = 2;
    view.shape[0] = rows, view.shape[1] = width;
    view.stride[0] = width, view.stride[1] = 1;
    return view;
}

int main() {
    constexpr std::int64_t kRows = 64, kInner = 32, kColumns = 16;
    std::vector<float> a(kRows * kInner, 0.5f), b(kInner * kColumns, 2.0f), bias(kColumns, 1.0f);
    std::vector<float> c(kRows * kColumns);

    axle::kernels::Cpu cpu;  // owns the scratch memory
    axle::View bias_view = matrix(bias, 1, kColumns);
    bias_view.shape[0] = kColumns, bias_view.stride[0] = 1, bias_view.ndim = 1;
    axle::kernels::matmul(cpu, matrix(a, kRows, kInner), matrix(b, kInner, kColumns),
                          matrix(c, kRows, kColumns),
                          {.bias = bias_view, .activation = axle::Activation::relu});
    std::cout << "c[0][0] is " << c[0] << " with " << axle::kernels::num_threads()
              << " threads; scratch memory: " << cpu.scratch_bytes() << " bytes\n";
    return c[0] == 33 ? 0 : 1;
}
// [/call]
