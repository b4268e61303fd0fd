#include "dist/transport/launcher_channel.h"

#include <type_traits>
#include <utility>

#include "core/text/text.h"
#include "core/tree/tree.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

// Parses a line. Returns nullopt if the line is not a JSON object, or is longer than
// kMaxLauncherLine.
std::optional<Tree> read_map(std::string_view line) {
    if (line.size() > kMaxLauncherLine) return {};
    try {
        Tree tree = from_json(line);
        if (tree.is_map()) return tree;
    } catch (const Error&) {  // the line is not a message of Axle
    }
    return {};
}

bool read_integer(const Tree& map, std::string_view key, auto& value) {
    using Value = std::remove_reference_t<decltype(value)>;
    const Tree* found = map.find(key);
    if (found == nullptr || !found->is_integer()) return false;
    if (!std::in_range<Value>(found->integer())) return false;
    value = static_cast<Value>(found->integer());
    return true;
}

bool read_string(const Tree& map, std::string_view key, std::string& value) {
    const Tree* found = map.find(key);
    if (found == nullptr || !found->is_string()) return false;
    value = found->string();
    return true;
}

}  // namespace

std::string to_line(const ChildEnd& end) {
    return to_json(Tree{{"rank", end.rank},
                        {"pid", end.pid},
                        {"signal", end.signal},
                        {"exit_code", end.exit_code}},
                   -1) +
           '\n';
}

std::optional<ChildEnd> read_child_end(std::string_view line) {
    const auto map = read_map(line);
    ChildEnd end;
    if (!map || !read_integer(*map, "rank", end.rank) || !read_integer(*map, "pid", end.pid) ||
        !read_integer(*map, "signal", end.signal) ||
        !read_integer(*map, "exit_code", end.exit_code)) {
        return {};
    }
    return end;
}

std::string to_line(const ReportedFailure& failure) {
    // The text is truncated, so that the line fits into kMaxLauncherLine even if every character is
    // escaped.
    const std::string_view text = std::string_view(failure.text).substr(0, kMaxLauncherLine / 8);
    return to_json(Tree{{"failure", replace_invalid_utf8(text)},
                        {"rank", failure.rank},
                        {"failed", failure.failed},
                        {"op", failure.op},
                        {"seq", static_cast<std::int64_t>(failure.sequence)},
                        {"pid", failure.pid},
                        {"host", replace_invalid_utf8(failure.host)},
                        {"running", failure.is_running}},
                   -1) +
           '\n';
}

std::optional<ReportedFailure> read_reported_failure(std::string_view line) {
    const auto map = read_map(line);
    ReportedFailure failure;
    if (!map || !read_string(*map, "failure", failure.text) ||
        !read_integer(*map, "rank", failure.rank) ||
        !read_integer(*map, "failed", failure.failed) || !read_string(*map, "op", failure.op) ||
        !read_integer(*map, "seq", failure.sequence)) {
        return {};
    }
    read_integer(*map, "pid", failure.pid);
    read_string(*map, "host", failure.host);
    const Tree* running = map->find("running");
    failure.is_running = running != nullptr && running->is_boolean() && running->boolean();
    return failure;
}

void LineReader::add(std::string_view bytes) {
    if (dropping_) {
        const std::size_t end = bytes.find('\n');
        if (end == std::string_view::npos) return;
        bytes.remove_prefix(end + 1);
        dropping_ = false;
    }
    pending_ += bytes;
    const std::size_t last = pending_.rfind('\n');
    const std::size_t whole = last == std::string::npos ? 0 : last + 1;
    if (pending_.size() - whole >= kMaxLauncherLine) {
        pending_.resize(whole);
        dropping_ = true;
    }
}

std::optional<std::string> LineReader::next() {
    const std::size_t end = pending_.find('\n');
    if (end == std::string::npos) return {};
    std::string line = pending_.substr(0, end);
    pending_.erase(0, end + 1);
    return line;
}

}  // namespace axle::dist
