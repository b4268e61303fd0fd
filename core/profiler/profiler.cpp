// The recording of the profiler. Each thread appends to its own queue of chunks, which only
// collect() and stop() read, so no thread waits for another. The open scopes of a thread form a
// list. A scope that closes adds its time to the enclosing scope, so self times need no second
// pass.
#include "core/profiler/profiler.h"

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#include "core/memory/memory.h"
#include "core/tensor.h"

namespace axle::profiler {
namespace {

std::int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// A record of a scope, or of an allocator sample if the name is null.
struct Record {
    const char* name = nullptr;
    Category category = Category::op;
    std::uint32_t recording = 0;
    std::int64_t start = 0, end = 0, self = 0;
    std::int64_t bytes = 0, self_bytes = 0;  // in samples, the current and the reserved bytes
    std::unique_ptr<std::vector<Shape>> shapes;
};

// A lock-free queue with one writer and one reader.
class Queue {
  public:
    Queue() : head_(new Chunk), tail_(head_) {}
    ~Queue() {
        while (head_ != nullptr) delete std::exchange(head_, head_->next.load());
    }
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;

    // Adds a record, or discards it if there is no memory, because profiling must not end the
    // program.
    void push(Record record) noexcept {
        std::size_t size = tail_->size.load(std::memory_order_relaxed);
        if (size == kRecords) {
            auto* const next = new (std::nothrow) Chunk;
            if (next == nullptr) return;
            tail_->next.store(next, std::memory_order_release);
            tail_ = next;
            size = 0;
        }
        tail_->records[size] = std::move(record);
        tail_->size.store(size + 1, std::memory_order_release);
    }

    // Removes all records from the queue and calls take(record) for each of them.
    template <class Take>
    void drain(Take&& take) {
        for (;;) {
            const std::size_t size = head_->size.load(std::memory_order_acquire);
            while (read_ < size) take(std::move(head_->records[read_++]));
            Chunk* const next = head_->next.load(std::memory_order_acquire);
            if (read_ < kRecords || next == nullptr) return;
            delete std::exchange(head_, next);
            read_ = 0;
        }
    }

  private:
    static constexpr std::size_t kRecords = 256;
    struct Chunk {
        std::array<Record, kRecords> records;
        std::atomic<std::size_t> size = 0;
        std::atomic<Chunk*> next = nullptr;
    };

    Chunk* head_;           // used by the reader only
    std::size_t read_ = 0;  // number of records of head_ that were read
    Chunk* tail_;           // used by the writer only
};

struct ThreadLog {
    int number = 0;
    std::atomic<const char*> name = nullptr;
    Queue queue;
    // The members below are used only by the thread that owns the log.
    Scope* innermost = nullptr;
    std::int64_t allocated = 0;  // bytes allocated since the thread's first scope
};

struct Registry {
    std::mutex mutex;
    // The logs of all threads. If only the registry owns a log, its thread has exited.
    std::vector<std::shared_ptr<ThreadLog>> logs;
    std::set<std::string, std::less<>> names;
    int threads = 0;
    std::uint32_t recordings = 0;
    std::int64_t start = 0;
};

// Returns the registry. It is never destroyed because threads can outlive main.
Registry& registry() {
    static auto* const instance = new Registry;
    return *instance;
}

// The options of the active recording. They are written before `recording` is set.
std::atomic<bool> records_shapes = false;
std::atomic<bool> profiles_memory = false;
std::atomic<bool> records_scopes = true;

// These variables have no destructors, so that destructors of other thread-local objects can still
// open scopes. Such scopes are not recorded.
thread_local ThreadLog* current_log = nullptr;
thread_local bool thread_is_ending = false;
thread_local const char* thread_name = nullptr;

struct LogHolder {
    ~LogHolder() {
        current_log = nullptr;
        thread_is_ending = true;
    }
    std::shared_ptr<ThreadLog> log;
};

ThreadLog* make_log() {
    thread_local LogHolder holder;
    Registry& r = registry();
    auto log = std::make_shared<ThreadLog>();
    const std::lock_guard lock(r.mutex);
    r.logs.push_back(log);
    log->number = r.threads++;
    log->name = thread_name;
    holder.log = std::move(log);
    return current_log = holder.log.get();
}

// Returns this thread's log, or null if there is no memory or the thread is exiting.
ThreadLog* this_log() noexcept {
    if (current_log != nullptr || thread_is_ending) return current_log;
    try {
        return make_log();
    } catch (...) {
        return nullptr;
    }
}

std::string display_name(const Record& record) {
    if (record.category == Category::backward) return str(record.name, " backward");
    if (record.category == Category::optimizer) return str(record.name, ".step");
    return record.name;
}

void add_to(Trace& trace, Record&& record, int thread) {
    if (record.name == nullptr) {
        trace.samples.push_back({record.start, record.bytes, record.self_bytes});
        return;
    }
    trace.events.push_back(
        {.name = display_name(record),
         .category = record.category,
         .thread = thread,
         .start = record.start,
         .end = record.end,
         .self = record.self,
         .bytes = record.bytes,
         .self_bytes = record.self_bytes,
         .operands = record.shapes ? std::move(*record.shapes) : std::vector<Shape>()});
}

// Moves the records of recording number `of` to the trace, and discards the records of earlier
// recordings. The caller must hold the registry's mutex.
void drain(Registry& r, std::uint32_t of, Trace& trace) {
    for (const std::shared_ptr<ThreadLog>& log : r.logs) {
        bool any = false;  // true if the trace gets an event of this thread
        log->queue.drain([&](Record&& record) {
            if (record.recording != of) return;
            any |= record.name != nullptr;
            add_to(trace, std::move(record), log->number);
        });
        const char* const name = log->name;
        if (any) trace.threads[log->number] = name ? name : str("thread ", log->number);
    }
    std::erase_if(r.logs, [](const auto& log) { return log.use_count() == 1; });
    if (trace.start == 0) trace.start = r.start;
    trace.end = now();
}

}  // namespace

void start(Options options) {
    ThreadLog* const log = this_log();
    const MemoryStats memory = host_memory::stats();
    Registry& r = registry();
    const std::lock_guard lock(r.mutex);
    if (enabled())
        throw UsageError("profiler: start: a recording is already running; call stop() first");
    if (log != nullptr && r.recordings == 0 && log->name == nullptr) log->name = "main";
    records_shapes = options.record_shapes;
    profiles_memory = options.profile_memory;
    records_scopes = options.record_scopes;
    r.start = now();
    // The number 0 means that no recording is active, so it is skipped when the counter overflows.
    if (++r.recordings == 0) ++r.recordings;
    recording.store(r.recordings);
    // This thread must have a log, because record_memory would lock the mutex again to create one.
    if (options.profile_memory && log != nullptr) record_memory(0, memory.current, memory.reserved);
}

void collect(Trace& trace) {
    Registry& r = registry();
    const std::lock_guard lock(r.mutex);
    if (!enabled())
        throw UsageError("profiler: collect: no recording is running; call start() first");
    drain(r, recording.load(), trace);
}

Trace stop() {
    Trace trace;
    stop(trace);
    return trace;
}

void stop(Trace& trace) {
    Registry& r = registry();
    const std::lock_guard lock(r.mutex);
    if (!enabled()) throw UsageError("profiler: stop: no recording is running; call start() first");
    const std::uint32_t ended = recording.exchange(0);
    records_shapes = profiles_memory = false;
    drain(r, ended, trace);
}

void name_this_thread(const char* name) noexcept {
    thread_name = name;
    if (current_log != nullptr) current_log->name = name;
}

const char* intern_name(std::string_view name) {
    Registry& r = registry();
    const std::lock_guard lock(r.mutex);
    auto found = r.names.find(name);
    if (found == r.names.end()) found = r.names.emplace(name).first;
    return found->c_str();
}

// --- recording of scopes

void Scope::open(const char* name, Category category) noexcept {
    ThreadLog* const log = this_log();
    const std::uint32_t running = recording.load(std::memory_order_acquire);
    if (log == nullptr || running == 0 || !records_scopes.load(std::memory_order_relaxed)) return;
    recording_ = running;
    category_ = category;
    name_ = name;
    parent_ = std::exchange(log->innermost, this);
    inner_ = inner_bytes_ = 0;
    shapes_ = nullptr;
    bytes_before_ = log->allocated;
    start_ = now();
}

void Scope::close() noexcept {
    const std::int64_t end = now();
    std::unique_ptr<std::vector<Shape>> shapes(shapes_);
    ThreadLog* const log = current_log;
    if (log == nullptr) return;
    // Scope objects that are not on the stack can be closed in any order, so the list is searched.
    Scope** link = &log->innermost;
    while (*link != this) link = &(*link)->parent_;
    *link = parent_;
    const std::int64_t total = end - start_, bytes = log->allocated - bytes_before_;
    if (parent_ != nullptr) {
        parent_->inner_ += total;
        parent_->inner_bytes_ += bytes;
    }
    if (recording.load(std::memory_order_relaxed) != recording_) return;
    log->queue.push({.name = name_,
                     .category = category_,
                     .recording = recording_,
                     .start = start_,
                     .end = end,
                     .self = total - inner_,
                     .bytes = bytes,
                     .self_bytes = bytes - inner_bytes_,
                     .shapes = std::move(shapes)});
}

void Communication::begin(std::string_view name) noexcept {
    if (!records_scopes.load(std::memory_order_relaxed)) return;
    try {
        name_ = intern_name(name);
    } catch (...) {  // no memory, so the event is discarded
        return;
    }
    recording_ = recording.load(std::memory_order_acquire);
    start_ = now();
}

void Communication::end() noexcept {
    ThreadLog* const log = this_log();
    if (log == nullptr || recording.load(std::memory_order_relaxed) != recording_) return;
    log->queue.push({.name = name_,
                     .category = Category::communication,
                     .recording = recording_,
                     .start = start_,
                     .end = now(),
                     .shapes = nullptr});
}

void record_operands(const char* op, std::initializer_list<const Tensor*> tensors) noexcept {
    if (!records_shapes.load(std::memory_order_relaxed) || current_log == nullptr) return;
    Scope* const scope = current_log->innermost;
    if (scope == nullptr || scope->category_ != Category::op || scope->shapes_ != nullptr ||
        std::strcmp(scope->name_, op) != 0)
        return;
    try {
        auto shapes = std::make_unique<std::vector<Shape>>();
        shapes->reserve(tensors.size());
        for (const Tensor* t : tensors) shapes->push_back(t->shape());
        scope->shapes_ = shapes.release();
    } catch (...) {  // NOLINT(bugprone-empty-catch): no memory, so the shapes are discarded
    }
}

void record_memory(std::int64_t allocated, std::int64_t current, std::int64_t reserved) noexcept {
    const bool sampled = profiles_memory.load(std::memory_order_relaxed);
    ThreadLog* const log = sampled ? this_log() : current_log;
    if (log == nullptr) return;
    log->allocated += allocated;
    if (!sampled) return;
    const std::int64_t time = now();
    log->queue.push({.name = nullptr,
                     .recording = recording.load(std::memory_order_acquire),
                     .start = time,
                     .end = time,
                     .bytes = current,
                     .self_bytes = reserved,
                     .shapes = nullptr});
}

}  // namespace axle::profiler
