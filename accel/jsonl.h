// Metrics as JSON lines.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "core/tree.h"

namespace axle::inline v0::accel {

// A file with one JSON object a line, each with an integer "step". Numbers are written in the
// shortest form that reads back the same; each line is handed to the system when it is written.
class JsonLines {
  public:
    // Keeps the lines of a file that is there up to step `keep_through`, and drops the rest: those
    // of a run that went on after its checkpoint, and a line that a crash cut short. 0 starts anew.
    JsonLines(const std::string& path, std::int64_t keep_through);
    // FileError if it can't be written.
    void write(const Tree& object);

  private:
    std::string path_;
    std::ofstream file_;
};

}  // namespace axle::inline v0::accel
