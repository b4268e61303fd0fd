// The profiler records which scopes ran, on which thread, for how long, and how much memory they
// allocated.
//
//     profiler::start();
//     { profiler::RecordFunction scope("evaluate"); evaluate(model); }
//     const profiler::Trace trace = profiler::stop();
//     std::cout << profiler::table(profiler::key_averages(trace), {.row_limit = 20});
//     profiler::export_chrome_trace(trace, "trace.json");
//
// Ops, backward rules, optimizer steps, batches and checkpoints open their own scopes. When
// nothing is recorded, a scope costs one relaxed load and a branch. During a recording, a scope
// reads the clock twice and appends to a buffer of its thread, without a lock; memory is allocated
// once every few hundred scopes, and for recorded shapes. RecordFunction and Communication first
// look up their name under a lock.
//
// A scope measures wall time on its thread. The time of a CPU op includes the work of the thread
// pool.
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

namespace axle {

class Tensor;

namespace profiler {

struct Options {
    bool record_shapes = false;  // records the shapes of each op's operands
    // If true, records a memory sample at every allocation, and when host memory is released.
    bool profile_memory = false;
    bool record_scopes = true;  // if false, no events are recorded
};

// Starts the recording of the process. Throws UsageError if a recording is active.
void start(Options options = {});
// End the recording and return its trace, or append its events and samples to a trace that
// collect() has filled. Throw UsageError if no recording is active. Open scopes are discarded.
Trace stop();
void stop(Trace& trace);
// Moves the events and samples recorded so far to the end of `trace`, and continues the recording.
// Throws UsageError if no recording is active.
void collect(Trace& trace);

// Sets the name of this thread in traces. The name must be a string literal, because the pointer is
// stored. The default is "thread 0", "thread 1", ...; for the first thread that calls start(), it
// is "main".
void name_this_thread(const char* name) noexcept;

// The number of the active recording, or 0 if there is none. Call enabled() to test whether a
// recording is active.
inline constinit std::atomic<std::uint32_t> recording = 0;
inline bool enabled() { return recording.load(std::memory_order_relaxed) != 0; }

// Records the time from construction to destruction. Use it on one thread only.
class Scope {
  public:
    // Opens the scope. The name's pointer is stored, so the name must be a literal or text that
    // exists until the program ends. Traces show backward scopes as "name backward" and optimizers
    // as "name.step".
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
    friend void record_operands(const char*, std::initializer_list<const Tensor*>) noexcept;

    void open(const char* name, Category category) noexcept;
    void close() noexcept;

    std::uint32_t recording_ = 0;  // 0 if not opened; then the members below are not set
    Category category_;
    const char* name_;
    Scope* parent_;
    std::int64_t start_;  // in ns
    std::int64_t inner_;  // time in directly nested scopes, in ns
    std::int64_t bytes_before_, inner_bytes_;
    std::vector<Shape>* shapes_;  // owned by the scope
};

// The scope of an op. An op opens it in its first statement; trivial cases can return before it.
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

// Returns a copy of the text that is never freed. Equal texts give the same pointer.
const char* intern_name(std::string_view name);

// A communication that runs concurrently with the scopes of its thread. It is recorded from
// construction to destruction, which must be on one thread. Communications can end in any order.
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

    std::uint32_t recording_ = 0;  // 0 if not begun; then the members below are not set
    const char* name_;
    std::int64_t start_;  // in ns
};

// A scope for a part of the user's program. The name can be any text.
class RecordFunction {
  public:
    explicit RecordFunction(std::string_view name)
        : scope_(enabled() ? intern_name(name) : "", Category::user) {}

  private:
    Scope scope_;
};

// Records the shapes of an op's operands, if shapes are recorded and `op` has opened the innermost
// scope.
void record_operands(const char* op, std::initializer_list<const Tensor*> tensors) noexcept;
// Called after an allocation of `allocated` bytes, or after a release with `allocated` = 0. Counts
// the bytes for the open scopes of this thread, and, with profile_memory, records a sample of
// `current` and `reserved`, in bytes.
void record_memory(std::int64_t allocated, std::int64_t current, std::int64_t reserved) noexcept;

}  // namespace profiler
}  // namespace axle
