// Private to tools: kernels of other libraries, which `axle bench` compares with Axle's kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernel_library.h"
#include "tools/axle/bench/kernel.h"

namespace axle::bench {

// A kernel of another library.
struct OtherKernel {
    std::string kernel;  // the name of Axle's kernel for comparison
    std::string name;    // the name of its rows
    // Returns 0, or a code if the call is not supported.
    std::function<std::int32_t(const AxleKernelCall&)> run = {};
    // Whether the user has named the library. Unsupported calls of other libraries have no row.
    bool named = false;
};

// The kernels of the opened libraries, and the result of the search for each library.
struct FoundLibraries {
    std::vector<OtherKernel> kernels;
    // The name of each library, and its path or the reason why it is not measured.
    std::vector<std::pair<std::string, std::string>> places;
};
// Opens the libraries in `names`: "eigen" (built with Axle for the instruction set), "openblas" and
// "onednn".
FoundLibraries find_libraries(const std::vector<std::string>& names);
// The names that find_libraries() supports.
inline const std::vector<std::string> kLibraryNames = {"eigen", "openblas", "onednn"};

// Opens a library of kernels (kernels/kernel_library.h), and never closes it. Throws FileError if
// it is missing or cannot be opened, and UsageError if it has another interface or a kernel that
// cannot be compared.
std::vector<OtherKernel> open_kernel_library(const std::string& path);

// A call of a kernel of another library with the operands of a problem.
class OtherCall {
  public:
    OtherCall(const OtherKernel& kernel, const Problem& problem);
    // Computes the outputs with `threads` threads. Returns the code of the kernel.
    std::int32_t operator()(int threads);

  private:
    const OtherKernel& kernel_;
    const Problem& problem_;
    std::vector<AxleKernelView> inputs_, outputs_;
};

// Returns copies of the outputs of a problem.
std::vector<Tensor> outputs_of(const Problem& problem);
// Sets floating outputs to NaN, and other outputs to -1, so that elements that a kernel does not
// write are found.
void clear_outputs(Problem& problem);
// Returns the largest difference between an output and its expected output. The differences of an
// output are divided by the largest absolute value of its expected output. The result is NaN if an
// output has a NaN.
double difference(const Problem& problem, const std::vector<Tensor>& expected);
// Returns the limit of difference() above which a result is wrong. Rounding errors of the dtype are
// usually smaller.
double tolerance(DType dtype);

}  // namespace axle::bench
