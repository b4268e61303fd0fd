// Scalar: a number argument of an op.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/error.h"

namespace axle {

// A number of any arithmetic type: integers and booleans are stored as an int64, and other numbers
// as a double. Dtype promotion depends on the category of the type.
class Scalar {
  public:
    // Throws ValueError for an unsigned integer above INT64_MAX.
    template <class T>
        requires std::is_arithmetic_v<T>
    Scalar(T v)  // NOLINT(google-explicit-constructor)
        : category_(std::is_same_v<T, bool> ? Category::flag
                    : std::is_integral_v<T> ? Category::integer
                                            : Category::floating) {
        if constexpr (std::is_integral_v<T>) {
            if constexpr (std::is_unsigned_v<T> && sizeof(T) >= sizeof(std::int64_t))
                if (v > static_cast<T>(INT64_MAX))
                    throw ValueError(str("Scalar: the integer exceeds int64: ", v));
            integer_ = static_cast<std::int64_t>(v);
        } else {
            number_ = static_cast<double>(v);
        }
    }

    bool is_integral() const { return category_ != Category::floating; }  // also true for bool
    bool is_bool() const { return category_ == Category::flag; }
    // Returns the number. Integers that a double cannot represent are rounded.
    double to_double() const { return is_integral() ? static_cast<double>(integer_) : number_; }
    // Returns the integer or boolean; only allowed if is_integral() is true.
    std::int64_t to_int64() const { return integer_; }
    // Returns false for integers below -2^53 or above 2^53, which to_double() can round.
    bool fits_double() const {
        constexpr std::int64_t kLimit = std::int64_t{1} << 53;
        return !is_integral() || (integer_ >= -kLimit && integer_ <= kLimit);
    }

  private:
    enum class Category : std::uint8_t { flag, integer, floating };
    union {
        std::int64_t integer_;
        double number_;
    };
    Category category_;
};

}  // namespace axle
