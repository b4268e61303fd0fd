#include "dist/group/mesh_drawing.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

constexpr int kMostRanks = 256;
constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
constexpr int kBox = 34, kRow = 26, kGap = 24, kTop = 62, kLeft = 8;
constexpr std::array kColors = {"#2f6db3", "#3d8b4f", "#c47f17", "#a03c6e",
                                "#5b4fa2", "#2a8a8f", "#8a6d3b", "#b0493a"};

// Returns the number of ranks. Throws ValueError for invalid dimensions.
int checked_size(const std::vector<DeviceMesh::Dimension>& dimensions) {
    std::int64_t ranks = 1;
    std::set<std::string> names;
    for (const auto& [name, size] : dimensions) {
        if (name.empty() || name.find_first_not_of(kLetters) != std::string::npos)
            throw ValueError(str("draw_mesh: the name of a dimension must consist of letters, ",
                                 "digits and underscores: ", in_quotes(name)));
        if (!names.insert(name).second)
            throw ValueError(str("draw_mesh: duplicate dimension name: ", in_quotes(name)));
        if (size < 1)
            throw ValueError(
                str("draw_mesh: the size of ", in_quotes(name), " must be positive: ", size));
        ranks *= size;
        if (ranks > kMostRanks)
            throw ValueError(str("draw_mesh: the product of the sizes must be at most ", kMostRanks,
                                 " ranks: it is at least ", ranks));
    }
    return static_cast<int>(ranks);
}

// Returns the index of the rank's group among the groups of a dimension. Neighboring ranks along
// the dimension differ by `stride`.
int group_of(int rank, int size, int stride) {
    return rank / (size * stride) * stride + rank % stride;
}

}  // namespace

std::string draw_mesh(const std::vector<DeviceMesh::Dimension>& dimensions) {
    const int ranks = checked_size(dimensions);
    const int columns = dimensions.empty() ? 1 : dimensions.back().size, rows = ranks / columns;
    const int panel = std::max(columns * kBox, 96) + kGap;
    std::string text;
    int stride = ranks, x = kLeft;
    for (const auto& [name, size] : dimensions) {
        stride /= size;
        text += str("<text class=\"t\" x=\"", x, "\" y=\"22\">", name, "</text>\n",
                    "<text class=\"r\" x=\"", x, "\" y=\"40\">", ranks / size,
                    ranks == size ? " group of " : " groups of ", size, "</text>\n");
        for (int rank = 0; rank < ranks; ++rank) {
            const int left = x + rank % columns * kBox, top = kTop + rank / columns * kRow;
            const auto color =
                static_cast<std::size_t>(group_of(rank, size, stride)) % kColors.size();
            text += str("<rect x=\"", left, "\" y=\"", top, "\" width=\"", kBox - 3, "\" height=\"",
                        kRow - 4, "\" rx=\"3\" fill=\"", kColors[color], "\"/><text x=\"",
                        left + (kBox - 3) / 2, "\" y=\"", top + 15, "\" fill=\"#fff\">", rank,
                        "</text>\n");
        }
        x += panel;
    }
    const int width = x, height = kTop + rows * kRow + 8;
    return str("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", width, ' ', height,
               "\" width=\"", width,
               "\" font-family=\"system-ui, sans-serif\" font-size=\"11\" text-anchor=\"middle\">"
               "<style>.t{font-weight:600;font-size:13px;text-anchor:start} "
               ".r{text-anchor:start;fill:#555}</style><rect width=\"100%\" height=\"100%\" "
               "fill=\"#fff\"/>\n") +
           text + "</svg>\n";
}

}  // namespace axle::dist
