#include "tests/cases/json/call.h"

#include <utility>

namespace axle::tests {

namespace {

using nlohmann::json;

[[noreturn]] void wrong_type(const std::string& name, const char* expected, const json& value) {
    throw ValueError(str("argument ", name, ": expected ", expected, ", not ", value.dump()));
}

// JSON has no infinities and no NaN: they are the texts "inf", "-inf" and "nan".
double as_number(const std::string& name, const json& value) {
    if (value.is_number()) return value.get<double>();
    if (value == "inf") return std::numeric_limits<double>::infinity();
    if (value == "-inf") return -std::numeric_limits<double>::infinity();
    if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
    wrong_type(name, "a number", value);
}

std::int64_t as_integer(const std::string& name, const json& value) {
    if (!value.is_number_integer()) wrong_type(name, "an integer", value);
    return value.get<std::int64_t>();
}

Dims as_dims(const std::string& name, const json& value) {
    if (value.is_number_integer()) return Dims(value.get<std::int64_t>());
    if (!value.is_array()) wrong_type(name, "an integer or a list of integers", value);
    std::vector<std::int64_t> dims;
    for (const json& dim : value) dims.push_back(as_integer(name, dim));
    return Dims(dims);
}

Size2 as_size2(const std::string& name, const json& value) {
    const Dims dims = as_dims(name, value);
    if (dims.size() == 1) return dims[0];
    if (dims.size() != 2) wrong_type(name, "an integer or [height, width]", value);
    return {dims[0], dims[1]};
}

}  // namespace

Call::Call(std::vector<std::vector<Tensor>> inputs, json arguments)
    : inputs_(std::move(inputs)), arguments_(std::move(arguments)) {}

const Tensor& Call::x(std::size_t i) const {
    if (i >= inputs_.size() || inputs_[i].size() != 1)
        throw ValueError(str("input ", i, ": expected a tensor"));
    return inputs_[i][0];
}

Tensor Call::optional_x(std::size_t i) const { return i < inputs_.size() ? x(i) : Tensor(); }

const std::vector<Tensor>& Call::list(std::size_t i) const {
    if (i >= inputs_.size()) throw ValueError(str("input ", i, ": expected a list of tensors"));
    return inputs_[i];
}

const json* Call::find(const std::string& name) {
    read_.insert(name);
    const auto found = arguments_.find(name);
    return found == arguments_.end() || found->is_null() ? nullptr : &*found;
}

const json& Call::require(const std::string& name) {
    const json* value = find(name);
    if (value == nullptr) throw ValueError(str("argument ", name, " is missing"));
    return *value;
}

bool Call::has(const std::string& name) const {
    const auto found = arguments_.find(name);
    return found != arguments_.end() && !found->is_null();
}

double Call::number(const std::string& name) { return as_number(name, require(name)); }
double Call::number(const std::string& name, double fallback) {
    const json* value = find(name);
    return value == nullptr ? fallback : as_number(name, *value);
}
std::optional<double> Call::maybe_number(const std::string& name) {
    const json* value = find(name);
    return value == nullptr ? std::nullopt : std::optional(as_number(name, *value));
}

std::int64_t Call::integer(const std::string& name) { return as_integer(name, require(name)); }
std::int64_t Call::integer(const std::string& name, std::int64_t fallback) {
    const json* value = find(name);
    return value == nullptr ? fallback : as_integer(name, *value);
}
std::optional<std::int64_t> Call::maybe_integer(const std::string& name) {
    const json* value = find(name);
    return value == nullptr ? std::nullopt : std::optional(as_integer(name, *value));
}

bool Call::flag(const std::string& name, bool fallback) {
    const json* value = find(name);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) wrong_type(name, "true or false", *value);
    return value->get<bool>();
}

std::string Call::text(const std::string& name, const std::string& fallback) {
    const json* value = find(name);
    if (value == nullptr) return fallback;
    if (!value->is_string()) wrong_type(name, "a text", *value);
    return value->get<std::string>();
}

Scalar Call::scalar(const std::string& name) {
    const json& value = require(name);
    if (value.is_boolean()) return value.get<bool>();
    if (value.is_number_integer()) return value.get<std::int64_t>();
    return as_number(name, value);
}
Scalar Call::scalar(const std::string& name, Scalar fallback) {
    return find(name) == nullptr ? fallback : scalar(name);
}

Dims Call::dims(const std::string& name) { return as_dims(name, require(name)); }
Dims Call::dims(const std::string& name, const Dims& fallback) {
    const json* value = find(name);
    return value == nullptr ? fallback : as_dims(name, *value);
}

std::vector<double> Call::numbers(const std::string& name) {
    std::vector<double> numbers;
    for (const json& value : require(name)) numbers.push_back(as_number(name, value));
    return numbers;
}

Size2 Call::size2(const std::string& name, Size2 fallback) {
    const json* value = find(name);
    return value == nullptr ? fallback : as_size2(name, *value);
}
std::optional<Size2> Call::maybe_size2(const std::string& name) {
    const json* value = find(name);
    return value == nullptr ? std::nullopt : std::optional(as_size2(name, *value));
}

Reduction Call::reduction() {
    const std::string name = text("reduction", "mean");
    if (name == "mean") return Reduction::mean;
    if (name == "sum") return Reduction::sum;
    if (name == "none") return Reduction::none;
    throw ValueError(str("argument reduction: expected none, mean or sum, not ", name));
}

DType Call::dtype(const std::string& name, DType fallback) {
    const std::string dtype = text(name, "");
    return dtype.empty() ? fallback : dtype_named(dtype);
}

std::string Call::unread() const {
    std::string names;
    for (const auto& [name, value] : arguments_.items())
        if (!read_.contains(name)) names += (names.empty() ? "" : ", ") + name;
    return names;
}

const NamedOps& named_ops() {
    static const NamedOps ops = [] {
        NamedOps all;
        add_elementwise_ops(all);
        add_shape_ops(all);
        add_reduction_ops(all);
        add_network_ops(all);
        return all;
    }();
    return ops;
}

DType dtype_named(const std::string& name) {
    static const std::map<std::string, DType> dtypes = {
        {"float64", f64}, {"float32", f32}, {"float16", f16}, {"bfloat16", bf16},
        {"int64", i64},   {"int32", i32},   {"uint8", u8},    {"bool", boolean}};
    const auto found = dtypes.find(name);
    if (found == dtypes.end()) throw ValueError(str("no dtype has the name ", name));
    return found->second;
}

}  // namespace axle::tests
