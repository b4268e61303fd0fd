#include "tests/cases/json/call.h"

#include <utility>

namespace axle::tests {

namespace {

using nlohmann::json;

[[noreturn]] void wrong_type(const std::string& name, const char* expected, const json& value) {
    throw ValueError(str("argument ", name, ": expected ", expected, ", not ", value.dump()));
}

// Returns a number. JSON cannot represent infinities and NaN, so files contain the texts "inf",
// "-inf" and "nan".
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

Size2 as_size2(const std::string& name, const json& value, const Size2* fallback = nullptr) {
    if (value.is_number_integer()) return value.get<std::int64_t>();
    if (!value.is_array() || value.empty() || value.size() > 2)
        wrong_type(name, "an integer or [height, width]", value);
    const auto part = [&](const json& size, std::int64_t Size2::*member) {
        return size.is_null() && fallback != nullptr ? fallback->*member : as_integer(name, size);
    };
    return {part(value.front(), &Size2::h), part(value.back(), &Size2::w)};
}

// Returns a number as a 0-d tensor. In type promotion, the tensor does not change the dtype of x
// unless the number has a higher category.
Tensor number_like(Scalar value, const Tensor& x) {
    const DType dtype = x.dtype();
    if (is_floating(dtype)) return full({}, value, {dtype});
    if (!value.is_integral()) return full({}, value, {f32});
    if (dtype == boolean) return full({}, value);
    return full({}, value, {dtype});
}

}  // namespace

Call::Call(std::vector<std::vector<Tensor>> inputs, json arguments)
    : inputs_(std::move(inputs)), arguments_(std::move(arguments)) {
    // The argument "inplace" does not change the result.
    ignore({"inplace"});
}

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

std::vector<Tensor> Call::tensors() const {
    std::vector<Tensor> all;
    for (const auto& list : inputs_)
        for (const Tensor& x : list)
            if (x.defined()) all.push_back(x);
    return all;
}

Tensor Call::operand(std::size_t i, const std::string& name) {
    return has(name) ? number_like(scalar(name), x(0)) : x(i);
}

Tensor Call::converted(std::size_t i) {
    return has("dtype") ? axle::to(x(i), dtype("dtype", f32)) : x(i);
}

const json* Call::lookup(const std::string& name) const {
    const auto found = arguments_.find(name);
    return found == arguments_.end() || found->is_null() ? nullptr : &*found;
}

std::string Call::given_name(const std::string& name) const {
    static const std::map<std::string, std::string> others = {
        {"dim", "axis"}, {"keepdim", "keepdims"}, {"other", "x2"}};
    const auto other = others.find(name);
    return other != others.end() && arguments_.contains(other->second) ? other->second : name;
}

const json* Call::find(const std::string& name) {
    const std::string given = given_name(name);
    read_.insert(given);
    return lookup(given);
}

const json& Call::require(const std::string& name) {
    const json* value = find(name);
    if (value == nullptr) throw ValueError(str("argument ", name, " is missing"));
    return *value;
}

bool Call::has(const std::string& name) const { return lookup(given_name(name)) != nullptr; }

bool Call::is_list(const std::string& name) const {
    const json* value = lookup(given_name(name));
    return value != nullptr && value->is_array();
}

bool Call::is_text(const std::string& name) const {
    const json* value = lookup(given_name(name));
    return value != nullptr && value->is_string();
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

Dims Call::dims(std::initializer_list<const char*> names) {
    for (const char* name : names)
        if (has(name)) return dims(name);
    return dims(*names.begin());
}

std::vector<std::int64_t> Call::integers(const std::string& name) {
    std::vector<std::int64_t> integers;
    for (const json& value : require(name)) integers.push_back(as_integer(name, value));
    return integers;
}

const json& Call::value(const std::string& name) { return require(name); }

std::vector<double> Call::numbers(const std::string& name) {
    std::vector<double> numbers;
    for (const json& value : require(name)) numbers.push_back(as_number(name, value));
    return numbers;
}

Size2 Call::size2(const std::string& name) { return as_size2(name, require(name)); }
Size2 Call::size2(const std::string& name, Size2 fallback) {
    const json* value = find(name);
    return value == nullptr ? fallback : as_size2(name, *value, &fallback);
}
std::optional<Size2> Call::maybe_size2(const std::string& name) {
    const json* value = find(name);
    if (value == nullptr || (value->is_array() && value->empty())) return std::nullopt;
    return as_size2(name, *value);
}

std::string Call::reduction_name() {
    const bool average = flag("size_average", true), reduce = flag("reduce", true);
    if (has("size_average") || has("reduce")) return !reduce ? "none" : average ? "mean" : "sum";
    const json* value = find("reduction");
    if (value == nullptr || !value->is_number_integer()) return text("reduction", "mean");
    const std::int64_t number = value->get<std::int64_t>();
    if (number < 0 || number > 2) wrong_type("reduction", "0, 1 or 2", *value);
    return number == 0 ? "none" : number == 1 ? "mean" : "sum";
}

Reduction Call::reduction() {
    const std::string name = reduction_name();
    if (name == "mean") return Reduction::mean;
    if (name == "sum") return Reduction::sum;
    if (name == "none") return Reduction::none;
    throw ValueError(str("argument reduction: expected none, mean or sum, not ", name));
}

DType Call::dtype(const std::string& name, DType fallback) {
    const std::string dtype = text(name, "");
    return dtype.empty() ? fallback : dtype_named(dtype);
}

InferredOptions Call::options() {
    ignore({"layout", "pin_memory", "memory_format"});
    if (!text("device", "cpu").starts_with("cpu"))
        throw ValueError("argument device: only cpu is supported");
    InferredOptions options;
    if (has("dtype")) options.dtype = dtype("dtype", f32);
    options.requires_grad = flag("requires_grad", false);
    return options;
}
TensorOptions Call::options(DType fallback) { return options().with(fallback); }

void Call::ignore(std::initializer_list<const char*> names) {
    for (const char* name : names) read_.insert(name);
}

void Call::support_only(const std::string& name, const json& supported) {
    const json* value = find(name);
    if (value != nullptr && *value != supported)
        throw ValueError(str("argument ", name, ": ", value->dump(), " is not supported"));
}

std::string Call::unread() const {
    std::string names;
    for (const auto& [name, value] : arguments_.items())
        if (!read_.contains(name) && !value.is_null()) names += (names.empty() ? "" : ", ") + name;
    return names;
}

const NamedOps& named_ops() {
    static const NamedOps ops = [] {
        NamedOps all;
        add_elementwise_ops(all);
        add_creation_ops(all);
        add_shaping_ops(all);
        add_selection_ops(all);
        add_reduction_ops(all);
        add_statistics_ops(all);
        add_product_ops(all);
        add_linalg_ops(all);
        add_network_ops(all);
        add_spatial_ops(all);
        add_loss_ops(all);
        add_aliases(all);
        return all;
    }();
    return ops;
}

const NamedOps::mapped_type* named_op(const std::string& name) {
    const NamedOps& ops = named_ops();
    if (name.starts_with("torch.masked.") || name.starts_with("masked.")) return nullptr;
    const std::size_t last = name.rfind('.');
    std::vector<std::string> candidates = {name.substr(last + 1)};
    if (last != std::string::npos && last > 0) {
        const std::size_t before = name.rfind('.', last - 1);
        candidates.insert(candidates.begin(), name.substr(before + 1));
    }
    for (std::string candidate : candidates) {
        if (ops.contains(candidate)) return &ops.at(candidate);
        if (!candidate.ends_with('_') || candidate.ends_with("__")) continue;
        candidate.pop_back();
        if (ops.contains(candidate)) return &ops.at(candidate);
    }
    return nullptr;
}

DType dtype_named(const std::string& text) {
    const std::string name = text.starts_with("torch.") ? text.substr(6) : text;
    static const std::map<std::string, DType> dtypes = {
        {"float64", f64}, {"float32", f32}, {"float16", f16}, {"bfloat16", bf16}, {"double", f64},
        {"float", f32},   {"half", f16},    {"int64", i64},   {"int32", i32},     {"uint8", u8},
        {"long", i64},    {"int", i32},     {"bool", boolean}};
    const auto found = dtypes.find(name);
    if (found == dtypes.end()) throw ValueError(str("no dtype has the name ", name));
    return found->second;
}

}  // namespace axle::tests
