// Declares the functions that add op cases (see OpCase), and helpers of their sources. Most
// families of ops have a source of their own.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/op_case.h"

namespace axle::tests {

using Cases = std::vector<OpCase>;

void add_create_cases(Cases& cases);
void add_random_cases(Cases& cases);
void add_convert_cases(Cases& cases);
void add_view_cases(Cases& cases);
void add_shaping_cases(Cases& cases);
void add_arithmetic_cases(Cases& cases);
void add_compare_cases(Cases& cases);
void add_unary_cases(Cases& cases);
void add_elementwise_cases(Cases& cases);
void add_reduce_cases(Cases& cases);
void add_reductions_cases(Cases& cases);
void add_statistics_cases(Cases& cases);
void add_index_cases(Cases& cases);
void add_selection_cases(Cases& cases);
void add_matmul_cases(Cases& cases);
void add_products_cases(Cases& cases);
void add_linalg_cases(Cases& cases);
void add_conv_cases(Cases& cases);
void add_norm_cases(Cases& cases);
void add_pool_cases(Cases& cases);
void add_interpolate_cases(Cases& cases);
void add_sampling_cases(Cases& cases);
void add_convolutions_cases(Cases& cases);
void add_pools_cases(Cases& cases);
void add_attention_cases(Cases& cases);
void add_recurrent_cases(Cases& cases);
void add_loss_cases(Cases& cases);
void add_losses_cases(Cases& cases);
void add_checkpoint_cases(Cases& cases);

// Add bad calls to the cases of families whose files would otherwise be too long.
void add_bad_shaping_calls(Cases& cases);
void add_bad_selection_calls(Cases& cases);
void add_bad_linalg_calls(Cases& cases);

// Returns the rows of a case without tensor inputs.
inline std::vector<Row> no_inputs() { return {Row{}}; }

// Return the case with this name, or the first case of an op. Throw UsageError if there is none.
OpCase& case_named(Cases& cases, const std::string& name);
OpCase& first_case(Cases& cases, const std::string& op);

// Sets the autocast class of all cases of these ops.
void set_autocast(Cases& cases, Autocast autocast, std::initializer_list<const char*> ops);

// Adds a bad call to the first case of an op: call() must throw an E whose message begins with
// `prefix` and contains the words. If `prefix` is empty, the message must begin with the op's name
// and ": ".
template <class E>
void refuses(Cases& cases, const std::string& op, std::vector<std::string> words,
             std::function<void()> call, const std::string& prefix = {}) {
    const auto is_expected = []([[maybe_unused]] const Error& error) {
        if constexpr (std::is_same_v<E, Error>)
            return true;
        else
            return dynamic_cast<const E*>(&error) != nullptr;
    };
    first_case(cases, op).bad_calls.push_back(
        {is_expected, prefix.empty() ? op + ": " : prefix, std::move(words), std::move(call)});
}

// Return operands for bad calls: tensors of ones with the given shape (floating, integer or
// boolean), and a 1-d i64 tensor of the given values.
Tensor floats_of(const Shape& shape);
Tensor ints_of(const Shape& shape);
Tensor bools_of(const Shape& shape);
Tensor indices(const std::vector<std::int64_t>& values);

}  // namespace axle::tests
