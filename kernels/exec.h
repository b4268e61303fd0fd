// Where a kernel runs: the first argument of every kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/thread_pool.h"

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

}  // namespace axle::inline v0::kernels
