// A call of an op that a JSON file describes. tests/cases/README.md documents the files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/ops.h"
#include "nlohmann/json.hpp"
#include "tests/op_case.h"

namespace axle::tests {

// The inputs and arguments of one call. Arguments are given by PyTorch's names. A function with a
// fallback returns it if the argument is missing or null; without one, the argument is required.
// All functions throw ValueError for a value of another type, with the argument's name.
class Call {
  public:
    // `inputs` has one list for each input. A list has one element unless the input is a list of
    // tensors. A missing optional tensor is undefined.
    Call(std::vector<std::vector<Tensor>> inputs, nlohmann::json arguments);

    const Tensor& x(std::size_t i) const;    // throws ValueError if the input is missing
    Tensor optional_x(std::size_t i) const;  // undefined if the input is missing
    const std::vector<Tensor>& list(std::size_t i = 0) const;
    std::size_t size() const { return inputs_.size(); }

    bool has(const std::string& name) const;  // whether the argument is present and not null
    double number(const std::string& name);
    double number(const std::string& name, double fallback);
    std::optional<double> maybe_number(const std::string& name);
    std::int64_t integer(const std::string& name);
    std::int64_t integer(const std::string& name, std::int64_t fallback);
    std::optional<std::int64_t> maybe_integer(const std::string& name);
    bool flag(const std::string& name, bool fallback);
    std::string text(const std::string& name, const std::string& fallback);
    Scalar scalar(const std::string& name);
    Scalar scalar(const std::string& name, Scalar fallback);
    Dims dims(const std::string& name);  // an integer or a list of integers
    Dims dims(const std::string& name, const Dims& fallback);
    std::vector<double> numbers(const std::string& name);
    Size2 size2(const std::string& name, Size2 fallback);  // an integer or [height, width]
    std::optional<Size2> maybe_size2(const std::string& name);
    Reduction reduction();  // the argument "reduction"
    DType dtype(const std::string& name, DType fallback);

    // Returns the arguments that no function above has read, separated by commas.
    std::string unread() const;

  private:
    const nlohmann::json* find(const std::string& name);
    const nlohmann::json& require(const std::string& name);

    std::vector<std::vector<Tensor>> inputs_;
    nlohmann::json arguments_;
    std::set<std::string> read_;
};

using NamedOps = std::map<std::string, std::function<Outputs(Call&)>>;

// Returns the ops that JSON files can call, by PyTorch's names.
const NamedOps& named_ops();

// Each function adds the ops of one source in this folder.
void add_elementwise_ops(NamedOps& ops);
void add_shape_ops(NamedOps& ops);
void add_reduction_ops(NamedOps& ops);
void add_network_ops(NamedOps& ops);

// Returns the dtype with PyTorch's name, such as "float64". Throws ValueError for another name.
DType dtype_named(const std::string& name);

}  // namespace axle::tests
