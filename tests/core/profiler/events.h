// Helpers for tests of the profiler. They find events and rows, and construct events.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/profiler/profiler.h"

namespace axle::tests {

// event() returns the only event with a name, and row() returns the first row with it. Both throw
// std::runtime_error if there is none, and event() also throws it if there are several.
inline const profiler::Event& event(const profiler::Trace& trace, const std::string& name) {
    const profiler::Event* found = nullptr;
    for (const profiler::Event& e : trace.events) {
        if (e.name != name) continue;
        if (found != nullptr)
            throw std::runtime_error("event: the trace has more than one event with this name: " +
                                     name);
        found = &e;
    }
    if (found == nullptr)
        throw std::runtime_error("event: the trace has no event with this name: " + name);
    return *found;
}

inline const profiler::Row& row(const std::vector<profiler::Row>& rows, const std::string& name) {
    for (const profiler::Row& r : rows)
        if (r.name == name) return r;
    throw std::runtime_error("row: the table has no row with this name: " + name);
}

// Returns a user event from `start` to `end`. Its bytes equal its times in nanoseconds, so that
// tests can also check sums of bytes.
inline profiler::Event span(const std::string& name, std::int64_t start, std::int64_t end,
                            std::int64_t self, int thread = 0) {
    return {.name = name,
            .category = profiler::Category::user,
            .thread = thread,
            .start = start,
            .end = end,
            .self = self,
            .bytes = end - start,
            .self_bytes = self};
}

}  // namespace axle::tests
