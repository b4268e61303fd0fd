// The profiler: what ran, on which thread, for how long and with how much memory.
//
//     profiler::start();
//     { profiler::RecordFunction scope("evaluate"); evaluate(model); }
//     const profiler::Trace trace = profiler::stop();
//     std::cout << profiler::table(profiler::key_averages(trace), {.row_limit = 20});
//     profiler::export_chrome_trace(trace, "trace.json");
//
// Ops, backward rules, optimizer steps, batches and checkpoints open scopes of their own. While
// nothing records, a scope is one relaxed load and a branch. While a recording runs it reads a
// clock twice and appends to a buffer that only its thread writes to: no lock, and no memory but a
// new chunk of the buffer every few hundred scopes.
//
// A scope measures wall time on its thread: that of a CPU op with the threads that help it.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/profiler/trace.h"
#include "kernels/error.h"

namespace axle::inline v0 {

class Tensor;

namespace profiler {

struct Options {
    bool record_shapes = false;   // of the tensors that an op checks: its operands
    bool profile_memory = false;  // a sample of the allocator with every allocation and release
};

// A process has one recording at a time. UsageError if one runs.
void start(Options options = {});
// Ends it; UsageError if none runs. Scopes that are still open are left out. The second form adds
// to what collect() has moved to `trace`.
Trace stop();
void stop(Trace& trace);
// Moves what has been recorded so far to the end of `trace`; the recording goes on.
void collect(Trace& trace);

// How traces call this thread: a literal, kept by address. Without a name it is "thread 1" and so
// on, and "main" if it is the first to call start().
void name_this_thread(const char* name) noexcept;

// 0, or which recording runs. Read it through enabled().
inline constinit std::atomic<std::uint32_t> recording = 0;
inline bool enabled() { return recording.load(std::memory_order_relaxed) != 0; }

// From construction to destruction, also by an exception. Belongs to the thread that made it.
class Scope {
  public:
    // The name is kept by address: a literal, or text that lives as long as the program. Backward
    // scopes are shown as "name backward", optimizers as "name.step".
    Scope(const char* name, Category category) {
        if (enabled()) [[unlikely]]
            open(name, category);
    }
    ~Scope() {
        if (recording_ != 0) [[unlikely]]
            close();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

  private:
    friend void note_operands(const char*, std::initializer_list<const Tensor*>) noexcept;

    void open(const char* name, Category category) noexcept;
    void close() noexcept;

    std::uint32_t recording_ = 0;  // 0: never opened, and nothing below is set
    Category category_;
    const char* name_;
    Scope* parent_;
    std::int64_t start_;  // ns
    std::int64_t inner_;  // ns in scopes directly inside
    std::int64_t bytes_before_, inner_bytes_;
    std::vector<Shape>* shapes_;  // owned
};

// The first line of an op, after the return of one that has nothing to do.
class OpScope : public Scope {
  public:
    explicit OpScope(const char* op)
        : Scope(op, Category::op), outer_(std::exchange(kernels::current_op, op)) {}
    ~OpScope() { kernels::current_op = outer_; }
    OpScope(const OpScope&) = delete;
    OpScope& operator=(const OpScope&) = delete;

  private:
    const char* outer_;
};

// A copy that is never freed; the same for the same text.
const char* lasting(std::string_view name);

// Communication that goes on beside the scopes of the thread that began it, from construction to
// destruction there; several may end in any order.
class Communication {
  public:
    explicit Communication(std::string_view name) {
        if (enabled()) [[unlikely]]
            begin(name);
    }
    ~Communication() {
        if (recording_ != 0) [[unlikely]]
            end();
    }
    Communication(const Communication&) = delete;
    Communication& operator=(const Communication&) = delete;

  private:
    void begin(std::string_view name) noexcept;
    void end() noexcept;

    std::uint32_t recording_ = 0;  // 0: never began, and nothing below is set
    const char* name_;
    std::int64_t start_;  // ns
};

// A part of the user's program, by any name.
class RecordFunction {
  public:
    explicit RecordFunction(std::string_view name)
        : scope_(enabled() ? lasting(name) : "", Category::user) {}

  private:
    Scope scope_;
};

// The operands of the innermost scope, if it is that of `op` and shapes are recorded.
void note_operands(const char* op, std::initializer_list<const Tensor*> tensors) noexcept;
// The allocator handed out `allocated` bytes (0: it took some back) and now stands so.
void note_memory(std::int64_t allocated, std::int64_t current, std::int64_t reserved) noexcept;

}  // namespace profiler
}  // namespace axle::inline v0
