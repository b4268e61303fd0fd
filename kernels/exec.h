// Execution contexts (Cpu and Cuda): the first argument of every kernel.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/thread_pool.h"

struct CUstream_st;  // cudaStream_t is a pointer to this struct

namespace axle::kernels {

// The execution context of a CPU kernel. Owns scratch memory that grows to the largest amount
// needed so far and is reused, so that repeated calls allocate nothing. Not thread-safe: each
// thread that calls kernels has its own Cpu.
class Cpu {
  public:
    Cpu() = default;
    Cpu(const Cpu&) = delete;
    Cpu& operator=(const Cpu&) = delete;

    // Returns the size of the scratch memory that this object owns, in bytes.
    std::int64_t scratch_bytes() const;

  private:
    friend class Scratch;
    struct Block {
        std::unique_ptr<std::byte[]> bytes;
        std::size_t size = 0;
    };
    std::vector<Block> blocks_;
    std::size_t block_ = 0;  // index of the current block
    std::size_t used_ = 0;   // bytes in use in the current block
};

// Scratch memory for one kernel call, taken from the memory that a Cpu owns and returned to it by
// the destructor. Objects of one Cpu must be destroyed in the reverse order of their construction,
// as local variables are. Memory is aligned to 64 bytes and not initialized.
class Scratch {
  public:
    explicit Scratch(Cpu& on) : on_(on), block_(on.block_), used_(on.used_) {}
    ~Scratch() { on_.block_ = block_, on_.used_ = used_; }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    // Returns uninitialized memory for `count` elements of type T.
    template <class T>
    T* take(std::int64_t count) {
        return static_cast<T*>(bytes(static_cast<std::size_t>(count) * sizeof(T)));
    }

  private:
    void* bytes(std::size_t size);

    Cpu& on_;
    std::size_t block_, used_;
};

// The record of an invalid input value that an asynchronous kernel detected. If `kind` is
// bad_weights, `position` is a row, `value` is the reason (BadWeights::Why) and `size` is 0.
struct DeviceErrorRecord {
    enum Kind : int { none, bad_index, bad_target, bad_weights };
    Kind kind = none;
    const char* op = nullptr;   // the op that queued the kernel
    std::int64_t position = 0;  // row-major position in the operand that contains the value
    std::int64_t value = 0;
    std::int64_t size = 0;  // the valid range is [0, size)
};

// Axle loads NVIDIA's libraries when the first kernel needs them. If a library is missing, Axle
// uses its own, slower kernels. take_library_warning() returns and clears the warnings about
// libraries, such as the name of a missing library and the folders that were searched.
// has_library_warning is true while there are such warnings. Both can be used by any thread.
inline constinit std::atomic<bool> has_library_warning = false;
std::string take_library_warning();

// The execution context of a GPU kernel: one stream of an NVIDIA GPU. Kernels throw CudaError if
// their launch fails. They return without waiting for the GPU, with two exceptions: matrix products
// wait when they measure algorithms (kernels/cuda/matmul/matmul_tuning.h), and the first kernel
// that can report an error waits in error_slot(). The memory of their arguments must stay valid
// until the stream has executed them. Not thread-safe: each thread that calls kernels has its own
// Cuda, and must make the device of this Cuda its current device before the call.
class Cuda {
  public:
    // The allocator of scratch memory. Freed memory can be reused immediately by the next request
    // on the same stream. The default is the driver's stream-ordered pool.
    struct Memory {
        void* (*allocate)(Cuda& on, std::size_t size) = nullptr;
        void (*deallocate)(Cuda& on, void* block, std::size_t size) noexcept = nullptr;
    };

    // Creates a context, and makes its device the current device of this thread. Throws DeviceError
    // if the device does not exist or the build does not support it. Throws CudaError if a call of
    // the CUDA runtime fails for another reason.
    Cuda(int device, CUstream_st* stream) : Cuda(device, stream, Memory()) {}
    Cuda(int device, CUstream_st* stream, Memory memory);
    ~Cuda();
    Cuda(const Cuda&) = delete;
    Cuda& operator=(const Cuda&) = delete;

    int device() const { return device_; }
    CUstream_st* stream() const { return stream_; }
    int multiprocessors() const { return multiprocessors_; }

    // If true, kernels use only algorithms that give the same bits in every run.
    bool deterministic = false;
    // If true, kernels may round the operands of f32 matrix products and convolutions to TF32 (10
    // mantissa bits).
    bool allow_tf32 = false;

    // Returns the first error that a kernel reported since the last call, and clears it. Does not
    // wait: the result is complete only if the stream has been synchronized before. Throws
    // CudaError if the error cannot be cleared.
    DeviceErrorRecord take_error();
    // Returns the memory in which kernels report errors (kernels/cuda/error_slot.h). The first call
    // allocates and clears it, waits until it is cleared, and throws CudaError if this fails.
    struct ErrorSlot;
    ErrorSlot* error_slot();

  private:
    friend class DeviceScratch;
    int device_;
    CUstream_st* stream_;
    Memory memory_;
    int multiprocessors_ = 0;
    ErrorSlot* error_slot_ = nullptr;
};

// Scratch memory for one kernel call on a GPU, released in stream order at the end of the scope.
// Memory is aligned to 256 bytes and not initialized.
class DeviceScratch {
  public:
    explicit DeviceScratch(Cuda& on) : on_(on) {}
    ~DeviceScratch();
    DeviceScratch(const DeviceScratch&) = delete;
    DeviceScratch& operator=(const DeviceScratch&) = delete;

    // Returns uninitialized memory for `count` elements of type T.
    template <class T>
    T* take(std::int64_t count) {
        return static_cast<T*>(bytes(static_cast<std::size_t>(count) * sizeof(T)));
    }

  private:
    struct Block {
        void* data;
        std::size_t size;
    };
    void* bytes(std::size_t size);

    Cuda& on_;
    std::vector<Block> blocks_;
};

}  // namespace axle::kernels
