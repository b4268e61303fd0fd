// Runs each recorded case on the number of ranks that recorded it.
#pragma once

#include <memory>
#include <set>

#include "dist/group/process_group.h"
#include "nlohmann/json.hpp"
#include "tests/dist/ranks.h"

namespace axle::tests {

// Calls f(case, group) for every case on the number of ranks that it needs.
template <class F>
void on_ranks_of_each(const nlohmann::json& file, F&& f) {
    std::set<int> sizes;
    for (const nlohmann::json& c : file["cases"]) sizes.insert(c.value("num_processes", 1));
    for (const int size : sizes)
        on_ranks(size, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
            for (const nlohmann::json& c : file["cases"])
                if (c.value("num_processes", 1) == size) f(c, group);
        });
}

}  // namespace axle::tests
