#include "tests/cases/json/file.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/storage.h"
#include "tests/close.h"
#include "tests/vectors.h"

namespace axle::tests {

namespace {

using nlohmann::json;

// Thrown if a case uses an op or an argument that is not supported.
struct Unknown {
    std::string what;
};

double element(const json& value) {
    if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
    if (value.is_number()) return value.get<double>();
    if (value == "inf") return std::numeric_limits<double>::infinity();
    if (value == "-inf") return -std::numeric_limits<double>::infinity();
    if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
    throw ValueError(str("not an element of a tensor: ", value.dump()));
}

std::vector<std::int64_t> integers(const json& values) {
    return values.get<std::vector<std::int64_t>>();
}

// Returns a 1-d tensor. Integers keep all 64 bits.
Tensor flat_tensor(const json& data, DType dtype) {
    const auto n = static_cast<std::int64_t>(data.size());
    if (dtype == i64) return tensor(integers(data), Shape{n}, {i64});
    std::vector<double> values;
    for (const json& value : data) values.push_back(element(value));
    return tensor(values, Shape{n}, {dtype});
}

// Returns the flat tensor's memory as a tensor of the given shape, strides and offset.
Tensor strided(const Tensor& flat, const Shape& shape, const Strides& strides,
               std::int64_t offset) {
    if (strides.size() != shape.size()) throw ValueError("strides: one is needed for each size");
    std::int64_t last = offset;
    for (int d = 0; d < shape.size(); ++d) {
        if (strides[d] < 0) throw ValueError("strides: a stride is negative");
        last += (shape[d] - 1) * strides[d];
    }
    if (offset < 0 || (numel(shape) > 0 && last >= flat.numel()))
        throw ValueError(str("strides: element ", last, " is needed, but data has ", flat.numel()));
    auto impl = std::make_shared<Impl>();
    impl->shape = shape;
    impl->strides = strides;
    impl->offset = offset;
    impl->dtype = flat.dtype();
    impl->storage = flat.impl()->storage;
    return Tensor(std::move(impl));
}

Tensor read_tensor(const json& text) {
    if (text.is_null()) return {};
    const DType dtype = dtype_named(text.value("dtype", "float64"));
    const Shape shape(integers(text.at("shape")));
    const Tensor flat = flat_tensor(text.at("data"), dtype);
    if (!text.contains("strides")) return view(flat, shape);
    return strided(flat, shape, Strides(integers(text["strides"])), text.value("offset", 0));
}

std::vector<std::vector<Tensor>> read_inputs(const json& test) {
    std::vector<std::vector<Tensor>> inputs;
    for (const json& input : test.value("inputs", json::array())) {
        inputs.emplace_back();
        for (const json& part : input.is_array() ? input : json::array({input}))
            inputs.back().push_back(read_tensor(part));
    }
    return inputs;
}

// Returns "torch.nn.functional.relu", "F.relu" or "Tensor.relu" without the part before "relu".
std::string short_name(const std::string& op) { return op.substr(op.rfind('.') + 1); }

// Returns the tensors of all inputs, in order.
std::vector<Tensor> flattened(const std::vector<std::vector<Tensor>>& inputs) {
    std::vector<Tensor> all;
    for (const auto& list : inputs) all.insert(all.end(), list.begin(), list.end());
    return all;
}

// Adds a line to `failure` unless the tensors have the same dtype and shape, and agree.
void compare(const std::string& name, const Tensor& actual, const Tensor& expected,
             double tolerance, std::string& failure) {
    std::string text;
    if (!actual.defined() || actual.shape() != expected.shape()) {
        text = str("shape ", actual.defined() ? str(actual.shape()) : "of an undefined tensor",
                   " instead of ", expected.shape());
    } else if (actual.dtype() != expected.dtype()) {
        text = str("dtype ", actual.dtype(), " instead of ", expected.dtype());
    } else {
        text = difference(actual, expected, tolerance);
    }
    if (!text.empty()) failure += str("\n    ", name, ": ", text);
}

double default_tolerance(const std::vector<Tensor>& inputs, const json& outputs) {
    double tolerance = 1e-10;
    for (const Tensor& x : inputs)
        if (x.defined()) tolerance = std::max(tolerance, Tolerances().of(x.dtype()));
    for (const json& y : outputs)
        tolerance = std::max(tolerance, Tolerances().of(dtype_named(y.value("dtype", "float64"))));
    return tolerance;
}

// Returns the gradients with respect to the inputs that have an expected gradient.
std::vector<Tensor> gradients_of(const Outputs& outputs, const std::vector<Tensor>& inputs,
                                 const json& test) {
    std::vector<Tensor> roots, cotangents, leaves;
    const json given = test.value("output_gradients", json::array());
    for (std::size_t k = 0; k < outputs.size(); ++k) {
        if (!outputs[k].requires_grad()) continue;
        roots.push_back(outputs[k]);
        const bool present = k < given.size() && !given[k].is_null();
        cotangents.push_back(present ? read_tensor(given[k]) : ones_like(outputs[k]));
    }
    for (const Tensor& x : inputs)
        if (x.defined() && x.requires_grad()) leaves.push_back(x);
    if (roots.empty()) throw UsageError("no output has a gradient");
    return autograd::grad(roots, leaves, cotangents);
}

// Runs one case. Returns how it failed, or an empty string. Throws Unknown, and the errors of the
// op and of JSON.
std::string run_case(const json& test) {
    const std::string name = test.at("op").get<std::string>();
    const std::string op = short_name(name);
    const auto* call_op = named_op(name);
    if (call_op == nullptr) throw Unknown{op};

    auto inputs = read_inputs(test);
    const json expected_gradients = test.value("gradients", json::array());
    const std::vector<Tensor> tensors = flattened(inputs);
    for (std::size_t i = 0; i < std::min(tensors.size(), expected_gradients.size()); ++i)
        if (!expected_gradients[i].is_null()) Tensor(tensors[i]).set_requires_grad(true);

    Call call(std::move(inputs), test.value("arguments", json::object()));
    if (test.contains("error")) {
        try {
            (*call_op)(call);
        } catch (const Error&) {
            return "";
        }
        return "\n    no error was thrown";
    }
    const Outputs outputs = (*call_op)(call);
    if (const std::string unread = call.unread(); !unread.empty())
        throw Unknown{op + "(" + unread + ")"};

    std::string failure;
    const json expected = test.value("outputs", json::array());
    const double tolerance = test.value("tolerance", default_tolerance(tensors, expected));
    if (expected.size() != outputs.size())
        return str("\n    ", outputs.size(), " outputs instead of ", expected.size());
    for (std::size_t k = 0; k < outputs.size(); ++k)
        compare(str("output ", k), outputs[k].detach(), read_tensor(expected[k]), tolerance,
                failure);
    if (std::none_of(tensors.begin(), tensors.end(),
                     [](const Tensor& x) { return x.defined() && x.requires_grad(); }))
        return failure;
    const std::vector<Tensor> gradients = gradients_of(outputs, tensors, test);
    std::size_t next = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (!tensors[i].defined() || !tensors[i].requires_grad()) continue;
        // Gradients of f16 and bf16 tensors are f32.
        const Tensor& actual = gradients[next++];
        compare(str("gradient ", i),
                actual.defined() ? to(actual, tensors[i].dtype()) : zeros_like(tensors[i]),
                read_tensor(expected_gradients[i]), tolerance, failure);
    }
    return failure;
}

}  // namespace

JsonReport run_json_cases(const std::string& path) {
    const json file = read_json(path);
    JsonReport report;
    int number = 0;
    for (const json& test : file.at("cases")) {
        const std::string label =
            str("case ", number++, " (", test.value("name", ""), test.contains("name") ? ", " : "",
                test.value("op", "?"), ")");
        std::string failure;
        try {
            failure = run_case(test);
        } catch (const Unknown& unknown) {
            ++report.unknown[unknown.what];
            continue;
        } catch (const std::exception& error) {
            failure = str("\n    ", error.what());
        }
        if (failure.empty()) {
            ++report.passed;
        } else {
            report.failed.push_back(label + failure);
        }
    }
    return report;
}

}  // namespace axle::tests
