// The families of cases: one function in one file each, in the order of core/ops.h.
#pragma once

#include <vector>

#include "tests/op_case.h"

namespace axle::tests {

using Cases = std::vector<OpCase>;

void add_create_cases(Cases& cases);
void add_random_cases(Cases& cases);
void add_convert_cases(Cases& cases);
void add_view_cases(Cases& cases);
void add_arithmetic_cases(Cases& cases);
void add_compare_cases(Cases& cases);
void add_unary_cases(Cases& cases);
void add_reduce_cases(Cases& cases);
void add_index_cases(Cases& cases);
void add_matmul_cases(Cases& cases);
void add_conv_cases(Cases& cases);
void add_norm_cases(Cases& cases);
void add_pool_cases(Cases& cases);
void add_interpolate_cases(Cases& cases);
void add_attention_cases(Cases& cases);
void add_loss_cases(Cases& cases);
void add_checkpoint_cases(Cases& cases);

// For cases without tensor inputs.
inline std::vector<Row> no_inputs() { return {Row{}}; }

}  // namespace axle::tests
