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

// The inputs and arguments of one call. Arguments have PyTorch's names; axis, keepdims and x2 are
// other names of dim, keepdim and other. If an argument is missing or null, getters with a
// fallback return it, getters named maybe_... return nullopt, and other getters throw ValueError.
// All getters throw ValueError with the argument's name if the value has another type.
class Call {
  public:
    // `inputs` has one list for each input. A list has one element unless the input is a list of
    // tensors. A missing optional tensor is undefined.
    Call(std::vector<std::vector<Tensor>> inputs, nlohmann::json arguments);

    const Tensor& x(std::size_t i) const;    // throws ValueError if the input is not one tensor
    Tensor optional_x(std::size_t i) const;  // undefined if the input is missing
    const std::vector<Tensor>& list(std::size_t i = 0) const;
    std::vector<Tensor> tensors() const;  // the defined tensors of all inputs and lists
    std::size_t size() const { return inputs_.size(); }
    // Returns the argument `name` as a 0-d tensor that takes part in type promotion with x(0) like
    // a number. If the argument is missing, returns input i.
    Tensor operand(std::size_t i, const std::string& name);
    // Returns input i in the dtype that the argument "dtype" gives, if any.
    Tensor converted(std::size_t i = 0);

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
    bool is_list(const std::string& name) const;
    bool is_text(const std::string& name) const;
    Dims dims(const std::string& name);  // an integer or a list of integers
    Dims dims(const std::string& name, const Dims& fallback);
    Dims dims(std::initializer_list<const char*> names);  // uses the first name that is present
    std::vector<std::int64_t> integers(const std::string& name);
    std::vector<double> numbers(const std::string& name);
    const nlohmann::json& value(const std::string& name);  // any value, such as a list of lists
    // Return an argument that is an integer, [size] or [height, width]. A null in the list stands
    // for the height or the width of the fallback.
    Size2 size2(const std::string& name);
    Size2 size2(const std::string& name, Size2 fallback);
    std::optional<Size2> maybe_size2(const std::string& name);  // an empty list is not a size
    // Returns the choice that the argument names. Throws ValueError for other names.
    template <class T>
    T one_of(const std::string& name, const std::string& fallback,
             const std::map<std::string, T>& choices) {
        const std::string chosen = text(name, fallback);
        const auto found = choices.find(chosen);
        if (found == choices.end())
            throw ValueError(str("argument ", name, ": ", chosen, " is not supported"));
        return found->second;
    }
    // Returns the argument "reduction", or the equivalent of the older arguments size_average and
    // reduce.
    Reduction reduction();
    std::string reduction_name();
    DType dtype(const std::string& name, DType fallback);
    // Returns the dtype and requires_grad of a new tensor. Throws ValueError for a device other
    // than the CPU.
    InferredOptions options();
    TensorOptions options(DType fallback);

    // Marks arguments as read, because they do not change the results.
    void ignore(std::initializer_list<const char*> names);
    // Throws ValueError if the argument is present and differs from `supported`.
    void support_only(const std::string& name, const nlohmann::json& supported);

    // Returns the names of the arguments that are not null and that no function above has read,
    // separated by commas.
    std::string unread() const;

  private:
    std::string given_name(const std::string& name) const;  // the name or its other name
    const nlohmann::json* lookup(const std::string& name) const;
    const nlohmann::json* find(const std::string& name);  // also marks the argument as read
    const nlohmann::json& require(const std::string& name);

    std::vector<std::vector<Tensor>> inputs_;
    nlohmann::json arguments_;
    std::set<std::string> read_;
};

using NamedOps = std::map<std::string, std::function<Outputs(Call&)>>;

// Returns the ops that JSON files can call, by PyTorch's names.
const NamedOps& named_ops();

// Each function adds the ops of one source file in this folder.
void add_elementwise_ops(NamedOps& ops);
void add_creation_ops(NamedOps& ops);
void add_shaping_ops(NamedOps& ops);
void add_selection_ops(NamedOps& ops);
void add_reduction_ops(NamedOps& ops);
void add_statistics_ops(NamedOps& ops);
void add_product_ops(NamedOps& ops);
void add_linalg_ops(NamedOps& ops);
void add_network_ops(NamedOps& ops);
void add_spatial_ops(NamedOps& ops);
void add_loss_ops(NamedOps& ops);
void add_aliases(NamedOps& ops);  // other names of ops that the functions above added

// Returns the op with PyTorch's name, such as "torch.nn.functional.relu", or nullptr. The parts
// before the last dot matter only if they distinguish ops: "linalg.norm" and "norm" are two ops. A
// final underscore is ignored, so "add_" is the op "add".
const NamedOps::mapped_type* named_op(const std::string& name);

// Returns the dtype with PyTorch's name, such as "float64". Throws ValueError for another name.
DType dtype_named(const std::string& name);

}  // namespace axle::tests
