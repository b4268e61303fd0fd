// Expands host lists in SLURM's format.
#include <charconv>
#include <cstdint>
#include <utility>

#include "core/files/file.h"
#include "dist/environment/environment.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

constexpr std::size_t kMaxHosts = 65536;
constexpr std::size_t kMaxName = 255;

class Nodelist {
  public:
    Nodelist(std::string_view list, std::string_view op) : list_(list), op_(op) {}

    std::vector<std::string> expand() {
        std::size_t begin = 0;
        for (;;) {
            const std::size_t end = end_of_item(list_, begin);
            const std::string_view item = list_.substr(begin, end - begin);
            if (item.empty()) fail("each name must have at least one character");
            add("", item);
            if (end == list_.size()) return std::move(hosts_);
            begin = end + 1;
        }
    }

  private:
    [[noreturn]] void fail(const char* what) const {
        throw ValueError(str(op_, ": ", what, ": ", in_quotes(list_)));
    }

    // Returns the index of the comma after the item that begins at `begin`, or the text's size if
    // there is none. Commas in brackets do not end an item.
    std::size_t end_of_item(std::string_view text, std::size_t begin) const {
        bool inside = false;
        for (std::size_t i = begin; i < text.size(); ++i) {
            if (text[i] == ',' && !inside) return i;
            if (text[i] != '[' && text[i] != ']') continue;
            if (inside == (text[i] == '[')) fail("brackets must be balanced and not nested");
            inside = !inside;
        }
        if (inside) fail("brackets must be balanced and not nested");
        return text.size();
    }

    // Adds all hosts whose names are `before` followed by an expansion of `rest`.
    void add(const std::string& before, std::string_view rest) {
        const std::size_t open = rest.find('[');
        std::string name = before + std::string(rest.substr(0, open));
        if (name.size() > kMaxName) fail("a name can have at most 255 characters");
        if (open == std::string_view::npos) {
            if (hosts_.size() == kMaxHosts) fail("a list can have at most 65536 hosts");
            hosts_.push_back(std::move(name));
            return;
        }
        const std::size_t close = rest.find(']', open);
        std::string_view ranges = rest.substr(open + 1, close - open - 1);
        for (;;) {
            const std::size_t comma = ranges.find(',');
            add_range(name, ranges.substr(0, comma), rest.substr(close + 1));
            if (comma == std::string_view::npos) return;
            ranges.remove_prefix(comma + 1);
        }
    }

    // Adds the hosts of a range such as "7" or "01-03". Numbers are padded with zeros to the width
    // of the first number.
    void add_range(const std::string& before, std::string_view range, std::string_view rest) {
        const std::size_t dash = range.find('-');
        const std::string_view first = range.substr(0, dash);
        const std::string_view last =
            dash == std::string_view::npos ? first : range.substr(dash + 1);
        const std::uint64_t low = number(first), high = number(last);
        if (low > high) fail("the end of a range must not be below its beginning");
        if (high - low >= kMaxHosts) fail("a list can have at most 65536 hosts");
        for (std::uint64_t i = low; i <= high; ++i) {
            const std::string digits = std::to_string(i);
            const std::size_t zeros =
                first.size() > digits.size() ? first.size() - digits.size() : 0;
            add(str(before, std::string(zeros, '0'), digits), rest);
        }
    }

    std::uint64_t number(std::string_view text) const {
        std::uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc() || end != text.data() + text.size() || text.size() > 18)
            fail("a range must consist of one or two numbers, such as 7 or 01-03");
        return value;
    }

    std::string_view list_, op_;
    std::vector<std::string> hosts_;
};

}  // namespace

std::vector<std::string> expand_nodelist(std::string_view list, const std::string& op) {
    return Nodelist(list, op).expand();
}

}  // namespace axle::dist
