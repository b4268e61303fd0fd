#include "tools/axle/bench/kernel.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "core/text/text.h"
#include "kernels/error.h"

namespace axle::bench {
namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;

constexpr std::pair<const char*, DType> kDTypes[] = {
    {"f64", f64}, {"f32", f32}, {"f16", f16}, {"bf16", bf16}};

std::vector<std::string> parts_of(const std::string& text) {
    std::vector<std::string> parts(1);
    for (const char c : text)
        if (c == 'x')
            parts.emplace_back();
        else
            parts.back() += c;
    return parts;
}

// Returns the bytes of the elements of a tensor. Elements of a dimension with stride 0 share
// memory, and are counted once.
double bytes_of(const Tensor& x) {
    double bytes = static_cast<double>(size_of(x.dtype()));
    const ConstView view = x.view();
    for (int d = 0; d < view.ndim; ++d)
        if (view.stride[d] != 0) bytes *= static_cast<double>(view.shape[d]);
    return bytes;
}

}  // namespace

const std::vector<Kernel>& kernels_of_bench() {
    static const std::vector<Kernel> all = [] {
        std::vector<Kernel> list;
        for (auto part : {products, streams, norms, training_kernels})
            for (Kernel& kernel : part()) list.push_back(std::move(kernel));
        return list;
    }();
    return all;
}

const Kernel& kernel_named(const std::string& name) {
    std::vector<std::string> names;
    for (const Kernel& kernel : kernels_of_bench()) {
        if (kernel.name == name) return kernel;
        names.push_back(kernel.name);
    }
    const std::string near = nearest(name, names);
    throw UsageError(
        str("bench: there is no kernel ", in_quotes(name),
            near.empty() ? "; see axle bench --list" : "; did you mean " + near + "?"));
}

Sizes parse_shape(const Kernel& kernel, const std::string& text) {
    const std::vector<std::string> names = parts_of(kernel.shape), parts = parts_of(text);
    const auto fail = [&](const std::string& problem) {
        throw UsageError(str(kernel.name, ": ", problem, ": the shape is ", in_quotes(text)));
    };
    if (parts.size() != names.size())
        fail(str("expected the ", names.size(), " sizes ", kernel.shape));
    Sizes sizes;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        std::int64_t size = -1;
        const char* const end = parts[i].data() + parts[i].size();
        const auto [stop, error] = std::from_chars(parts[i].data(), end, size);
        const std::int64_t least = names[i] == "P" ? 0 : 1;
        if (error != std::errc() || stop != end || size < least || size > kMaxSize)
            fail(str(names[i], " must be an integer from ", least, " to ", kMaxSize));
        sizes.push_back(size);
    }
    if (const std::string problem = kernel.check ? kernel.check(sizes) : ""; !problem.empty())
        fail(problem);
    return sizes;
}

std::string shape_text(const Sizes& shape) {
    std::string text;
    for (const std::int64_t size : shape) text += (text.empty() ? "" : "x") + std::to_string(size);
    return text;
}

std::string short_name(DType dtype) {
    for (const auto& [name, known] : kDTypes)
        if (known == dtype) return name;
    return std::string(name_of(dtype));
}

DType dtype_named(const std::string& name) {
    for (const auto& [known, dtype] : kDTypes)
        if (name == known) return dtype;
    throw UsageError(str("bench: the dtype must be f64, f32, f16 or bf16: ", in_quotes(name)));
}

Problem prepare(const Kernel& kernel, const Case& wanted) {
    const NoGrad no_grad;
    try {
        Problem problem = kernel.prepare(wanted);
        if (problem.bytes == 0) {
            for (const Tensor& x : problem.inputs) problem.bytes += bytes_of(x);
            for (const Tensor& x : problem.outputs) problem.bytes += bytes_of(x);
        }
        return problem;
    } catch (const OutOfMemory&) {
        throw ShapeError(str(kernel.name, ": the operands do not fit into memory: the shape is ",
                             in_quotes(shape_text(wanted.shape))));
    }
}

double count(std::initializer_list<std::int64_t> sizes) {
    double n = 1;
    for (const std::int64_t size : sizes) n *= static_cast<double>(size);
    return n;
}

Tensor matrix(std::int64_t rows, std::int64_t width, const Case& c) {
    if (c.layout == "T") return randn({width, rows}, {c.dtype}).t();
    return randn({rows, width}, {c.dtype});
}

}  // namespace axle::bench
