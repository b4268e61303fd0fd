#include "tools/axle/estimate/table.h"

#include <algorithm>
#include <cstddef>

namespace axle::launcher {
namespace {

// Returns the text centered in `width` characters, where a UTF-8 character counts once.
std::string padded(const std::string& text, std::size_t width) {
    const std::size_t letters = static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
    const std::size_t spaces = width - std::min(letters, width);
    return std::string(spaces / 2, ' ') + text + std::string(spaces - spaces / 2, ' ');
}

}  // namespace

std::string table(const std::string& title, const std::vector<TableRow>& rows) {
    std::vector<std::size_t> widths(rows[0].size());
    for (const TableRow& row : rows)
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    std::size_t inside = widths.size() - 1;
    for (const std::size_t width : widths) inside += width;
    if (title.size() > inside) widths.back() += title.size() - inside, inside = title.size();
    const auto line = [&](const char* left, const char* middle, const char* right) {
        std::string text = left;
        for (std::size_t i = 0; i < widths.size(); ++i) {
            if (i > 0) text += middle;
            for (std::size_t k = 0; k < widths[i]; ++k) text += "─";
        }
        return text + right + "\n";
    };
    std::string text =
        line("┌", "─", "┐") + "│" + padded(title, inside) + "│\n" + line("├", "┬", "┤");
    for (std::size_t r = 0; r < rows.size(); ++r) {
        for (std::size_t i = 0; i < widths.size(); ++i) text += "│" + padded(rows[r][i], widths[i]);
        text += "│\n" + (r == 0 ? line("├", "┼", "┤") : "");
    }
    return text + line("└", "┴", "┘");
}

}  // namespace axle::launcher
