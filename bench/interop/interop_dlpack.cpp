// A shared library that bench/interop/check loads into one process with PyTorch and NumPy, to
// exchange tensors by DLPack. Functions that return a pointer return null after an error, whose
// text interop_error() returns. interop_free() frees the tensors of interop_make() and
// interop_import().
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "bench/interop/interop_bytes.h"
#include "core/files/dlpack.h"

#define AXLE_INTEROP_API extern "C" __attribute__((visibility("default")))

namespace axle::bench {
namespace {

std::string& text() {
    thread_local std::string last;
    return last;
}

template <class F>
auto guarded(F&& f) -> decltype(f()) {
    try {
        return f();
    } catch (const std::exception& error) {
        text() = error.what();
        return nullptr;
    }
}

std::weak_ptr<Storage>& last_made() {
    static std::weak_ptr<Storage> storage;
    return storage;
}

}  // namespace
}  // namespace axle::bench

using namespace axle;
using namespace axle::bench;

AXLE_INTEROP_API const char* interop_error() { return text().c_str(); }

// Returns a view of columns 1 and 2 of a known tensor [4, 3], transposed. Its shape is [2, 4] and
// its strides are [1, 3]. `dtype` is an index into kAllDTypes.
AXLE_INTEROP_API Tensor* interop_make(int dtype) {
    return guarded([&] {
        const Tensor base = patterned({4, 3}, kAllDTypes[dtype]);
        last_made() = base.impl()->storage;
        return new Tensor(base.t().narrow(0, 1, 2));
    });
}
// Returns 1 if the memory of the last tensor of interop_make() is still allocated, else 0.
AXLE_INTEROP_API int interop_is_alive() { return last_made().expired() ? 0 : 1; }
AXLE_INTEROP_API void interop_free(Tensor* tensor) { delete tensor; }

AXLE_INTEROP_API void* interop_export(const Tensor* tensor, int versioned) {
    return guarded([&]() -> void* {
        if (versioned != 0) return to_dlpack(*tensor);
        return to_dlpack_unversioned(*tensor);
    });
}
AXLE_INTEROP_API Tensor* interop_import(void* managed, int versioned) {
    return guarded([&] {
        return new Tensor(versioned != 0
                              ? from_dlpack(static_cast<DLManagedTensorVersioned*>(managed))
                              : from_dlpack(static_cast<DLManagedTensor*>(managed)));
    });
}

AXLE_INTEROP_API void* interop_address(const Tensor* tensor) { return tensor->raw_data(); }
// Returns a description of a tensor in JSON, valid until the next call in this thread.
AXLE_INTEROP_API const char* interop_describe(const Tensor* tensor) {
    return guarded([&] {
        text() = to_json(described(*tensor), -1);
        return text().c_str();
    });
}
