// Declares the functions that add the cases of pools in files other than pools.cpp.
#pragma once

#include "tests/cases/cases.h"

namespace axle::tests {

void add_norm_pool_cases(Cases& cases);
void add_unpool_cases(Cases& cases);
void add_fractional_pool_cases(Cases& cases);

}  // namespace axle::tests
