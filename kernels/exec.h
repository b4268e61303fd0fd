// Where a kernel runs: the first argument of every kernel.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/thread_pool.h"

struct CUstream_st;  // what a cudaStream_t points at

namespace axle::inline v0::kernels {

// The CPU. Holds scratch memory that grows to the largest need and is then reused, so that a kernel
// in the steady state asks the system for nothing. One Cpu belongs to one calling thread.
class Cpu {
  public:
    Cpu() = default;
    Cpu(const Cpu&) = delete;
    Cpu& operator=(const Cpu&) = delete;

    // Bytes that all blocks hold at present.
    std::int64_t scratch_bytes() const;

  private:
    friend class Scratch;
    struct Block {
        std::unique_ptr<std::byte[]> bytes;
        std::size_t size = 0;
    };
    std::vector<Block> blocks_;
    std::size_t block_ = 0;  // the block that serves next
    std::size_t used_ = 0;   // bytes taken of it
};

// Scratch memory of one kernel call: a stack frame on the context's arena, given back at the end of
// the scope. Frames nest. Memory is aligned to 64 bytes and not initialised.
class Scratch {
  public:
    explicit Scratch(Cpu& on) : on_(on), block_(on.block_), used_(on.used_) {}
    ~Scratch() { on_.block_ = block_, on_.used_ = used_; }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    template <class T>
    T* take(std::int64_t count) {
        return static_cast<T*>(bytes(static_cast<std::size_t>(count) * sizeof(T)));
    }

  private:
    void* bytes(std::size_t size);

    Cpu& on_;
    std::size_t block_, used_;
};

// What a kernel found wrong with its data while nobody was waiting for it.
struct DeviceTrouble {
    enum Kind : int { none, bad_index, bad_target, bad_weights };
    Kind kind = none;
    const char* op = nullptr;   // in which the kernel was queued
    std::int64_t position = 0;  // row-major, in the operand that holds the value
    std::int64_t value = 0;
    std::int64_t size = 0;  // value should lie in [0, size)
};

// NVIDIA's libraries are opened by the first kernel that would use them; where one is missing, our
// own kernels do the work, more slowly. Says once what was missing and where it was looked for.
inline constinit std::atomic<bool> has_library_trouble = false;
std::string take_library_trouble();

// A stream of an NVIDIA GPU. Kernels check their launch (CudaError), are queued and return; what
// they are given must live until the stream has passed them. One Cuda belongs to one calling
// thread, whose current device it is while kernels are called.
class Cuda {
  public:
    // Where scratch memory comes from: freed memory may serve the stream's next request at once. By
    // default the driver's stream-ordered pool.
    struct Memory {
        void* (*allocate)(Cuda& on, std::size_t size) = nullptr;
        void (*deallocate)(Cuda& on, void* block, std::size_t size) noexcept = nullptr;
    };

    // DeviceError where there is no such device, or this build has no code for it.
    Cuda(int device, CUstream_st* stream) : Cuda(device, stream, Memory()) {}
    Cuda(int device, CUstream_st* stream, Memory memory);
    ~Cuda();
    Cuda(const Cuda&) = delete;
    Cuda& operator=(const Cuda&) = delete;

    int device() const { return device_; }
    CUstream_st* stream() const { return stream_; }
    int multiprocessors() const { return multiprocessors_; }

    // Only algorithms that give the same bits in every run; kernels that have none say so in their
    // header.
    bool deterministic = false;
    // f32 products may round their operands to TF32 (10 bits of mantissa).
    bool allow_tf32 = false;

    // Where kernels report: the first trouble since the last look. Waits for nothing; complete once
    // the stream has been synchronized.
    DeviceTrouble take_trouble();
    // For kernels, see kernels/cuda/trouble.cuh.
    struct TroubleBox;
    TroubleBox* trouble_box();

  private:
    friend class DeviceScratch;
    int device_;
    CUstream_st* stream_;
    Memory memory_;
    int multiprocessors_ = 0;
    TroubleBox* box_ = nullptr;
};

// Scratch memory of one kernel call on a GPU, given back (in the order of the stream) at the end of
// the scope. Aligned to 256 bytes, not initialised.
class DeviceScratch {
  public:
    explicit DeviceScratch(Cuda& on) : on_(on) {}
    ~DeviceScratch();
    DeviceScratch(const DeviceScratch&) = delete;
    DeviceScratch& operator=(const DeviceScratch&) = delete;

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

}  // namespace axle::inline v0::kernels
