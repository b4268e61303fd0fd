#include "dist/group/mesh_drawing.h"

#include <map>
#include <set>
#include <string>

#include "core/files/file.h"
#include "gtest/gtest.h"
#include "tests/close.h"

namespace axle {
namespace {

using dist::draw_mesh;
using tests::expect_error;

// Returns the colors of the ranks, panel by panel.
std::vector<std::string> colors_of(const std::string& svg) {
    const std::string key = "rx=\"3\" fill=\"";
    std::vector<std::string> colors;
    for (std::size_t at = svg.find(key); at != std::string::npos; at = svg.find(key, at + 1))
        colors.push_back(svg.substr(at + key.size(), 7));
    return colors;
}

TEST(DrawMesh, GivesTheRanksOfAGroupOneColorInThePanelOfTheirDimension) {
    const auto colors = colors_of(draw_mesh({{"pp", 2}, {"dp", 3}, {"tp", 2}}));
    ASSERT_EQ(colors.size(), 3u * 12);
    const std::string a = colors[0], b = colors[1], c = colors[2];
    EXPECT_EQ((std::set{a, b, c}.size()), 3u);
    // In panel pp, ranks r and r + 6 share a color. In panel dp, the even ranks of each half share
    // a color, and so do the odd ranks. In panel tp, neighbors share a color.
    for (std::size_t rank = 0; rank < 6; ++rank) EXPECT_EQ(colors[rank], colors[rank + 6]);
    EXPECT_EQ((std::set(colors.begin(), colors.begin() + 6).size()), 6u);
    EXPECT_EQ((std::vector(colors.begin() + 12, colors.begin() + 18)),
              (std::vector{a, b, a, b, a, b}));
    EXPECT_NE(colors[12], colors[18]);
    EXPECT_EQ((std::vector(colors.begin() + 24, colors.begin() + 30)),
              (std::vector{a, a, b, b, c, c}));
}

TEST(DrawMesh, RejectsInvalidDimensions) {
    expect_error<ValueError>({"draw_mesh: the name of a dimension must consist of letters", "<tp>"},
                             [] {
                                 draw_mesh({{"<tp>", 2}});
                             });
    expect_error<ValueError>({"draw_mesh: duplicate dimension name: 'tp'"}, [] {
        draw_mesh({{"tp", 2}, {"tp", 2}});
    });
    expect_error<ValueError>({"draw_mesh: the size of 'tp' must be positive: 0"}, [] {
        draw_mesh({{"tp", 0}});
    });
    expect_error<ValueError>(
        {"draw_mesh: the product of the sizes must be at most 256 ranks: it is at least 512"}, [] {
            draw_mesh({{"dp", 2}, {"tp", 256}, {"pp", 2}});
        });
}

// docs/examples/parallelism.cpp draws the image.
TEST(DrawMesh, DrawsTheImageInTheDocumentation) {
    EXPECT_EQ(draw_mesh({{"dp_replicate", 2}, {"dp_shard", 2}, {"tp", 2}}),
              read_file(AXLE_TESTS_DIR "/../docs/parallelism_mesh.svg"));
}

}  // namespace
}  // namespace axle
