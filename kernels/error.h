// The exception classes of Axle, and str(), which builds their messages.
//
// Messages have the form `op: what is wrong: the operands`, for example `matmul: inner dimensions
// differ: a is [2, 3], b is [4, 5]`. If the fix is known, it follows.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace axle {

// The base class of the exceptions that Axle throws deliberately, except std::bad_alloc, which is
// thrown if memory that is not for tensors cannot be allocated.
struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Thrown if the shapes of the operands do not match the operation.
struct ShapeError : Error {
    using Error::Error;
};
// Thrown if the operation does not support a dtype, or if the dtypes of the operands differ.
struct DTypeError : Error {
    using Error::Error;
};
// Thrown if a device is missing, or if the operands are on different or unsupported devices.
struct DeviceError : Error {
    using Error::Error;
};
// Thrown if an index, a dimension or a key does not exist.
struct IndexError : Error {
    using Error::Error;
};
// Thrown if an argument has an invalid value.
struct ValueError : Error {
    using Error::Error;
};
// Thrown if anomaly detection finds NaN (autograd::set_detect_anomaly).
struct NumericsError : Error {
    using Error::Error;
};
// Thrown if a file is missing, truncated, corrupt or not writable. The message contains the path
// and the reason.
struct FileError : Error {
    using Error::Error;
};
// Thrown if a call of the CUDA runtime or of an NVIDIA library fails.
struct CudaError : Error {
    using Error::Error;
};
// Thrown if communication between processes fails.
struct CommError : Error {
    using Error::Error;
};
// Thrown if functions are called in an unsupported order, or in a mode that does not support them.
struct UsageError : Error {
    using Error::Error;
};

// Thrown if memory for tensors cannot be allocated, and by find_executable_batch_size() if no batch
// size fits (`requested` is 0). Allocators, except the one of page-locked memory, first release
// their cache and retry. in_use, cached and peak are statistics of the allocator, or 0 for
// page-locked memory. All sizes are in bytes.
struct OutOfMemory : Error {
    OutOfMemory(const std::string& text, std::int64_t requested_, std::int64_t in_use_,
                std::int64_t cached_, std::int64_t peak_)
        : Error(text), requested(requested_), in_use(in_use_), cached(cached_), peak(peak_) {}
    std::int64_t requested, in_use, cached, peak;
};

namespace detail {

// One argument of str(): a character, number, text, or an object with operator<<.
class TextPart {
  public:
    template <class T>
    explicit TextPart(const T& value) {
        if constexpr (std::same_as<T, char> || std::same_as<T, signed char> ||
                      std::same_as<T, unsigned char>) {
            kind_ = Kind::letter;
            letter_ = static_cast<char>(value);
        } else if constexpr (std::signed_integral<T>) {
            kind_ = Kind::signed_integer;
            signed_ = value;
        } else if constexpr (std::unsigned_integral<T>) {
            kind_ = Kind::unsigned_integer;
            unsigned_ = value;
        } else if constexpr (std::floating_point<T>) {
            kind_ = Kind::number;
            number_ = static_cast<double>(value);
        } else if constexpr (std::convertible_to<const T&, std::string_view>) {
            kind_ = Kind::text;
            text_ = std::string_view(value);
        } else {
            kind_ = Kind::other;
            other_ = {&value, [](std::ostream& out, const void* object) {
                          out << *static_cast<const T*>(object);
                      }};
        }
    }

    void write(std::ostream& out) const;

  private:
    enum class Kind : std::uint8_t {
        letter,
        signed_integer,
        unsigned_integer,
        number,
        text,
        other
    };
    struct Other {
        const void* object;
        void (*write)(std::ostream& out, const void* object);
    };
    Kind kind_;
    union {
        char letter_;
        long long signed_;
        unsigned long long unsigned_;
        double number_;
        std::string_view text_;
        Other other_;
    };
};

std::string join(const TextPart* parts, std::size_t count);

}  // namespace detail

// Returns the arguments joined into one string: str("linear: ", shape, " has ", 3, " dims"). An
// argument is a number, a text, or any value with an operator<<. The result does not depend on the
// locale.
template <class... Parts>
std::string str(const Parts&... parts) {
    const detail::TextPart list[] = {detail::TextPart(parts)...};
    return detail::join(list, sizeof...(Parts));
}

namespace kernels {

// The name of the operation that this thread executes, never null. Errors that its kernels detect
// on a GPU are reported with this name.
inline constinit thread_local const char* current_op = "cuda";

}  // namespace kernels

}  // namespace axle
