// The error tree of Axle and the text helper that every message is built with.
//
// The law of the text: `op: what is wrong: the operands`, as in
// `matmul: inner dimensions differ: [2, 3] @ [4, 5]`, with the fix where it is known.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

namespace axle::inline v0 {

// Every exception that Axle throws on purpose derives from Error.
struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct ShapeError : Error {
    using Error::Error;
};
struct DTypeError : Error {
    using Error::Error;
};
struct DeviceError : Error {
    using Error::Error;
};
struct IndexError : Error {
    using Error::Error;
};
struct ValueError : Error {
    using Error::Error;
};
// A file that is missing, truncated, lying or not writable. The text names path and reason.
struct FileError : Error {
    using Error::Error;
};
struct CudaError : Error {
    using Error::Error;
};
struct CommError : Error {
    using Error::Error;
};
// The library was called in an order or a mode that it does not allow.
struct UsageError : Error {
    using Error::Error;
};

// Thrown after the allocator has flushed its cache and tried again. Sizes are bytes.
struct OutOfMemory : Error {
    OutOfMemory(const std::string& text, std::int64_t requested_, std::int64_t in_use_,
                std::int64_t cached_, std::int64_t peak_)
        : Error(text), requested(requested_), in_use(in_use_), cached(cached_), peak(peak_) {}
    std::int64_t requested, in_use, cached, peak;
};

// str("linear: ", shape, " has ", 3, " dims"): everything with an operator<<, in one string that is
// the same whatever locale the program has set.
template <class... Parts>
std::string str(const Parts&... parts) {
    std::ostringstream out;
    out.imbue(std::locale::classic());
    (out << ... << parts);
    return out.str();
}

namespace kernels {

// The operation that this thread is in: errors that a GPU finds begin with it. Never null.
inline constinit thread_local const char* current_op = "cuda";

}  // namespace kernels

}  // namespace axle::inline v0
