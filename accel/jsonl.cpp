#include "accel/jsonl.h"

#include <filesystem>

#include "core/file.h"

namespace axle::inline v0::accel {
namespace {

// The lines of a file that belong to steps up to a limit; stops at the first that is no object.
std::string kept_lines(const std::string& path, std::int64_t keep_through) {
    std::string kept;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line) && !file.eof();) {
        try {
            if (from_json(line)["step"].integer() > keep_through) break;
        } catch (const Error&) {
            break;
        }
        kept += line + '\n';
    }
    return kept;
}

}  // namespace

JsonLines::JsonLines(const std::string& path, std::int64_t keep_through) : path_(path) {
    const bool exists = std::filesystem::exists(path);
    write_file_atomically(path, exists && keep_through > 0 ? kept_lines(path, keep_through) : "");
    file_.open(path, std::ios::app);
    if (!file_) throw FileError(printable(path) + ": can't be opened for writing");
}

void JsonLines::write(const Tree& object) {
    file_ << to_json(object, -1) << '\n' << std::flush;
    if (!file_) throw FileError(printable(path_) + ": can't be written; is the disk full?");
}

}  // namespace axle::inline v0::accel
