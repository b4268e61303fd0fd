#include "tools/axle/multinode/hostfile.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::launcher {
namespace {

constexpr int kMaxSlots = 1024;  // maximum number of slots of a machine

bool is_host(std::string_view name) {
    const auto fits = [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               c == '.' || c == '_' || c == '-' || c == ':';
    };
    return !name.empty() && name[0] != '-' && std::ranges::all_of(name, fits);
}

std::optional<int> number_in(std::string_view text) {
    int number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || stop != end || number < 0) return std::nullopt;
    return number;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(separator, begin), text.size());
        parts.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

// Splits a line at spaces, tabs and carriage returns.
std::vector<std::string_view> words_of(std::string_view line) {
    std::vector<std::string_view> words;
    constexpr const char* kSpaces = " \t\r";
    for (std::size_t begin = line.find_first_not_of(kSpaces); begin != std::string_view::npos;) {
        const std::size_t end = std::min(line.find_first_of(kSpaces, begin), line.size());
        words.push_back(line.substr(begin, end - begin));
        begin = line.find_first_not_of(kSpaces, end);
    }
    return words;
}

// Returns the slots that a filter selects, by machine. An empty set means all slots of the machine.
std::map<std::string, std::set<int>> parse_filter(const char* option, const std::string& filter) {
    std::map<std::string, std::set<int>> nodes;
    for (const std::string_view node : split(filter, '@')) {
        // The slots follow the last colon, because IPv6 addresses contain colons too.
        const std::size_t colon = node.rfind(':');
        const std::string_view host = node.substr(0, colon);
        if (!is_host(host))
            throw ValueError(str("launch: ", option, " must be a list such as ",
                                 "'worker-0@worker-1:0,2': it is ", in_quotes(filter)));
        auto& slots = nodes[std::string(host)];
        if (colon == std::string_view::npos) continue;
        for (const std::string_view slot : split(node.substr(colon + 1), ',')) {
            const auto number = number_in(slot);
            if (!number)
                throw ValueError(str("launch: ", option, ": a slot must be a number: ",
                                     in_quotes(slot), " in ", in_quotes(filter)));
            slots.insert(*number);
        }
    }
    return nodes;
}

}  // namespace

std::string slot_list(const HostSlots& host) {
    std::string list;
    for (const int slot : host.slots) list += (list.empty() ? "" : ",") + std::to_string(slot);
    return list;
}

std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& name) {
    std::vector<HostSlots> hosts;
    std::set<std::string_view> seen;
    int number = 0;
    for (const std::string_view line : split(text, '\n')) {
        ++number;
        const auto words = words_of(line);
        if (words.empty() || words[0].starts_with('#')) continue;
        const auto fail = [&](const std::string& reason) {
            throw ValueError(
                str(printable(name), ":", number, ": ", reason, ": ", in_quotes(line)));
        };
        constexpr std::string_view kSlots = "slots=";
        const bool has_slots = words.size() > 1 && words[1].starts_with(kSlots);
        constexpr int kNone = INT_MIN;
        const int slots =
            has_slots ? number_in(words[1].substr(kSlots.size())).value_or(kNone) : kNone;
        const bool is_commented = words.size() == 2 || (words.size() > 2 && words[2][0] == '#');
        if (slots == kNone || !is_commented)
            fail("a line must be a machine and its slots, such as `worker-0 slots=4`");
        if (!is_host(words[0]))
            fail("a machine name must have letters, digits and ._-: only, and not begin with -");
        if (slots < 1 || slots > kMaxSlots) fail(str("slots must be from 1 to ", kMaxSlots));
        if (!seen.insert(words[0]).second) fail("a machine must be listed only once");
        HostSlots host{.host = std::string(words[0]), .slots = {}};
        for (int slot = 0; slot < slots; ++slot) host.slots.push_back(slot);
        hosts.push_back(std::move(host));
    }
    if (hosts.empty())
        throw ValueError(printable(name) + ": the hostfile must list at least one machine");
    return hosts;
}

std::vector<HostSlots> read_hostfile(const std::string& path) {
    return parse_hostfile(read_file(path, kMaxHostfile), path);
}

std::vector<HostSlots> filter_hosts(std::vector<HostSlots> hosts, const std::string& inclusion,
                                    const std::string& exclusion) {
    if (inclusion.empty() && exclusion.empty()) return hosts;
    if (!inclusion.empty() && !exclusion.empty())
        throw ValueError(
            "launch: deepspeed_inclusion_filter and deepspeed_exclusion_filter are both given; use "
            "one");
    const bool includes = !inclusion.empty();
    const char* const option =
        includes ? "deepspeed_inclusion_filter" : "deepspeed_exclusion_filter";
    auto nodes = parse_filter(option, includes ? inclusion : exclusion);
    std::vector<HostSlots> left;
    for (HostSlots& host : hosts) {
        const auto node = nodes.find(host.host);
        const bool is_named = node != nodes.end();
        const std::set<int> slots = is_named ? node->second : std::set<int>();
        for (const int slot : slots)
            if (std::ranges::find(host.slots, slot) == host.slots.end())
                throw ValueError(str("launch: ", option, ": ", host.host, " has no slot ", slot,
                                     ": the hostfile lists ", host.slots.size(),
                                     host.slots.size() == 1 ? " slot" : " slots"));
        std::erase_if(host.slots, [&](int slot) {
            const bool is_selected = is_named && (slots.empty() || slots.contains(slot));
            return is_selected != includes;
        });
        if (!host.slots.empty()) left.push_back(std::move(host));
        if (is_named) nodes.erase(node);
    }
    if (!nodes.empty())
        throw ValueError(str("launch: ", option, ": the hostfile does not list ",
                             in_quotes(nodes.begin()->first)));
    if (left.empty())
        throw ValueError(str("launch: ", option, " must leave at least one slot: ",
                             in_quotes(includes ? inclusion : exclusion)));
    return left;
}

}  // namespace axle::launcher
