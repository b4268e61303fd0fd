// Reads and runs JSON files of op cases. tests/cases/README.md documents the files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/cases/json/call.h"

namespace axle::tests {

// The results of the cases of one file.
struct JsonReport {
    int passed = 0;
    std::vector<std::string> failed;  // one text for each failed case
    // The number of cases for each op that named_ops() does not have, and for each argument that an
    // op does not read ("softmax(dtype)").
    std::map<std::string, int> unknown;
};

// Runs all cases of the file. Throws FileError if the file cannot be read or is not JSON; a case
// that violates the schema is a failed case.
JsonReport run_json_cases(const std::string& path);

}  // namespace axle::tests
