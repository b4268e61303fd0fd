// Comparisons of tensors, and expected errors.
#pragma once

#include <initializer_list>
#include <source_location>
#include <string>

#include "core/tensor.h"
#include "gtest/gtest.h"

namespace axle::tests {

// Returns a text that describes where and by how much two tensors differ, or an empty string.
// Shapes must be equal; dtypes can differ. An element may differ by tolerance * scale. The scale is
// the largest magnitude below 1e6 in `expected`, but at least 1 and at least the magnitude of the
// element. NaN equals NaN; infinities must be equal.
std::string difference(const Tensor& actual, const Tensor& expected, double tolerance);

// Expects that difference() finds no difference. Failures are reported at the caller's line.
void expect_close(const Tensor& actual, const Tensor& expected, double tolerance = 1e-6,
                  std::source_location at = std::source_location::current());
// Expects the same shape, dtype and values. 0 equals -0, and NaNs can have different payloads.
void expect_same_bits(const Tensor& actual, const Tensor& expected,
                      std::source_location at = std::source_location::current());

// Expects that call() throws an E whose text begins with the first part and contains the other
// parts.
template <class E, class Call>
void expect_error(std::initializer_list<const char*> parts, Call&& call,
                  std::source_location at = std::source_location::current()) {
    try {
        call();
    } catch (const E& error) {
        const std::string text = error.what();
        bool first = true;
        for (const std::string part : parts) {
            const auto found = text.find(part);
            if (first ? found != 0 : found == std::string::npos)
                ADD_FAILURE_AT(at.file_name(), at.line())
                    << "'" << text << "' should " << (first ? "begin with '" : "contain '") << part
                    << "'";
            first = false;
        }
        return;
    } catch (const std::exception& error) {
        ADD_FAILURE_AT(at.file_name(), at.line())
            << "another type of error than " << testing::internal::GetTypeName<E>() << ": '"
            << error.what() << "'";
        return;
    }
    ADD_FAILURE_AT(at.file_name(), at.line())
        << "no error; expected a text that begins with '" << *parts.begin() << "'";
}

}  // namespace axle::tests
