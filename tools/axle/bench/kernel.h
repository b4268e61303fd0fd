// Private to tools: the kernels that `axle bench` measures, and their calls with operands.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "kernels/exec.h"

namespace axle::bench {

using Sizes = std::vector<std::int64_t>;

// The sizes, the dtype and the layout of a call.
struct Case {
    Sizes shape = {};
    DType dtype = f32;
    std::string layout = {};
};

// A call of a kernel with its operands.
struct Problem {
    std::vector<Tensor> inputs = {}, outputs = {};  // the call gets views of these tensors
    // The parameters that a kernel of another library gets.
    std::vector<std::int64_t> integers = {};
    std::vector<double> numbers = {};
    std::function<void(kernels::Cpu&)> call = {};
    // Additions, multiplications and evaluations of a function, each counted as one.
    double operations = 0;
    // Bytes that must be read and written, each counted once. 0 means all inputs and outputs.
    double bytes = 0;
};

// The resource that limits the speed of a kernel on large operands.
enum class Limit { arithmetic, memory };

struct Kernel {
    std::string name;
    std::string shape;     // the names of the sizes, such as "MxNxK"
    std::string operands;  // inputs, outputs and parameters in calls of other libraries
    Limit limit = Limit::memory;
    std::vector<DType> dtypes;         // the first is the default
    std::vector<std::string> layouts;  // the first is the default
    std::vector<Sizes> shapes;         // measured if no shape is given
    std::function<Problem(const Case&)> prepare;
    // Returns the reason why sizes contradict each other, or "".
    std::function<std::string(const Sizes&)> check = {};
    // Whether this kernel can be compared with kernels of other libraries. It cannot if a call
    // changes its inputs or needs Axle's random numbers.
    bool replaceable = true;
};

// Returns all kernels, in the order of measurement.
const std::vector<Kernel>& kernels_of_bench();
// Returns the kernel with a name. Throws UsageError if the name is unknown.
const Kernel& kernel_named(const std::string& name);

// Converts a text such as "256x3072x768". Throws UsageError unless the text has the sizes of the
// kernel, each from 1 (a size named P from 0) to 2^40, and the sizes do not contradict each other.
Sizes parse_shape(const Kernel& kernel, const std::string& text);
// Returns a text such as "256x3072x768".
std::string shape_text(const Sizes& shape);

// Return the short name of a dtype, such as "bf16", and the dtype with a short name. dtype_named()
// throws UsageError if the name is not f64, f32, f16 or bf16.
std::string short_name(DType dtype);
DType dtype_named(const std::string& name);

// Creates the operands of a call. Throws ShapeError if they do not fit into memory.
Problem prepare(const Kernel& kernel, const Case& wanted);

// Return the parts of kernels_of_bench().
std::vector<Kernel> products();
std::vector<Kernel> streams();
std::vector<Kernel> norms();
std::vector<Kernel> training_kernels();

// Returns the product of the sizes.
double count(std::initializer_list<std::int64_t> sizes);
// Returns random numbers [rows, width]. With layout "T", the memory contains the transposed matrix.
Tensor matrix(std::int64_t rows, std::int64_t width, const Case& c);

}  // namespace axle::bench
