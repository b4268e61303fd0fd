// The protocol between a worker and the script in bench/peers/ that has started it. A line of input
// is a request, such as "run 20", and a line of output is the reply in JSON.
#pragma once

#include <iostream>
#include <sstream>
#include <string>

#include <nlohmann/json.hpp>

#include "kernels/error.h"

namespace axle::bench {

inline void reply(const nlohmann::json& line) { std::cout << line.dump() << std::endl; }

// Reads requests until "quit" or the end of the input, and replies with the result of answer(name,
// count). The count is 0 if the request has none. Throws ValueError if answer() returns null.
template <class Answer>
void answer_requests(Answer&& answer) {
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string name;
        int count = 0;
        words >> name >> count;
        if (name == "quit") return;
        const nlohmann::json result = answer(name, count);
        if (result.is_null())
            throw ValueError("bench: expected a request such as 'run 10', 'check 10' or 'quit': " +
                             line);
        reply(result);
    }
}

}  // namespace axle::bench
