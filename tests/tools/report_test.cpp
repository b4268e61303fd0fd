#include "tools/trainer/report.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <locale>
#include <regex>

#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/temporary_folder.h"
#include "tools/trainer/chart.h"
#include "tools/trainer/html.h"

namespace axle::trainer {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<Tree> metrics(int updates) {
    std::vector<Tree> rows;
    for (int step = 1; step <= updates; ++step) {
        rows.push_back(Tree{{"step", step}, {"epoch", 0.1}, {"loss", 4.0 / step}, {"lr", 1e-3}});
        if (step % 10 == 0) rows.back().set("val_loss", 5.0 / step);
    }
    return rows;
}

nlohmann::json values_in(const std::string& html) {
    const std::string open = "<script type=\"application/json\" id=\"values\">";
    const std::size_t begin = html.find(open) + open.size();
    return nlohmann::json::parse(html.substr(begin, html.find("</script>", begin) - begin));
}

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t n = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size())
        ++n;
    return n;
}

struct GroupedDigits : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
};

TEST(TrainingReport, DoesNotDependOnTheGlobalLocale) {
    Report report{.title = "run", .metrics = metrics(20)};
    report.results = {{"loss", 1234.5678}, {"peak_bytes", 123'456'789}, {"seconds", 3723.5}};
    report.configuration = {{"lr", 1.5e-4}, {"steps", 1234567}};
    const std::string expected = to_html(report);
    const std::locale before =
        std::locale::global(std::locale(std::locale::classic(), new GroupedDigits));
    const std::string html = to_html(report);
    std::locale::global(before);
    EXPECT_EQ(html, expected);
}

TEST(TrainingReport, ChartsTrainingAndEvaluationValuesOfAMetricTogether) {
    const std::string html = to_html({.title = "run", .metrics = metrics(20)});
    // There are charts of loss (with val_loss) and lr, but not of step and epoch.
    EXPECT_EQ(count(html, "<figure"), 2u);
    const auto values = values_in(html);
    ASSERT_EQ(values.size(), 2u);
    EXPECT_EQ(values[0]["curves"][0][0], "training");
    EXPECT_EQ(values[0]["curves"][0][1].size(), 20u);
    EXPECT_EQ(values[0]["curves"][1][1], nlohmann::json({10.0, 20.0}));
    EXPECT_EQ(values[0]["curves"][1][2], nlohmann::json({0.5, 0.25}));
}

TEST(TrainingReport, ShowsResultsConfigurationOperationsTextAndPictures) {
    profiler::Row row{.name = "matmul", .calls = 3, .self = 2'000'000, .total = 2'500'000};
    row.share = 0.75;
    const std::string html = to_html({.title = "run",
                                      .results = Tree{{"accuracy", 0.9875}, {"seconds", 65.0}},
                                      .configuration = Tree{{"adam", {{"lr", 0.5}}}},
                                      .operations = {row},
                                      .text = "To be",
                                      .pictures = {{"png bytes", "a seven", true}}});
    EXPECT_THAT(html, HasSubstr("<b>0.9875</b><span>accuracy</span>"));
    EXPECT_THAT(html, HasSubstr("<b>1:05</b><span>seconds</span>"));
    EXPECT_THAT(html, HasSubstr("adam.lr</td><td>0.5</td>"));
    EXPECT_THAT(html, HasSubstr("matmul</td>"));
    EXPECT_THAT(html, HasSubstr("75 %"));
    EXPECT_THAT(html, HasSubstr("<pre>To be</pre>"));
    EXPECT_THAT(html, HasSubstr("class=\"wrong\"><img alt=\"\" src=\"data:image/png;base64,"
                                "cG5nIGJ5dGVz\">a seven"));
}

TEST(TrainingReport, HasNoExternalResources) {
    const std::string html = to_html({.title = "run", .metrics = metrics(3), .text = "x"});
    const std::regex outside(R"((src|href)=\"(?!data:)|@import|url\(|<link|fetch\()");
    EXPECT_FALSE(std::regex_search(html, outside));
}

TEST(TrainingReport, EscapesText) {
    const std::string evil = "</script><script>alert(1)</script>&\"\x01\xff";
    const std::string html =
        to_html({.title = evil,
                 .results = Tree{{evil, evil}},
                 .metrics = Metrics({Tree{{"step", 1}, {evil.substr(0, 36), 2.0}}}),
                 .configuration = Tree{{evil, evil}},
                 .text = evil,
                 .pictures = {{"", evil, false}}});
    EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
    EXPECT_EQ(count(html, "</script>"), 2u);  // the values, and the script that shows them
    EXPECT_EQ(values_in(html).size(), 1u);
}

TEST(TrainingReport, ShowsAGapForNonFiniteLosses) {
    std::vector<Tree> rows = metrics(4);
    rows[2].set("loss", "NaN");  // to_json() writes NaN as this text
    const std::string html = to_html({.title = "run", .metrics = rows});
    EXPECT_TRUE(values_in(html)[0]["curves"][0][2][2].is_null());
    const std::smatch path = [&] {
        static std::string text;
        text = html;
        std::smatch match;
        std::regex_search(text, match, std::regex("class=\"curve c0\" d=\"([^\"]*)\""));
        return match;
    }();
    EXPECT_EQ(count(path[1], "M"), 2u);
    EXPECT_EQ(count(path[1], "L"), 1u);  // one line from point 1 to point 2
}

TEST(TrainingReport, WritesACompletePageWithoutMetrics) {
    const std::string html = to_html({.title = "run"});
    EXPECT_TRUE(values_in(html).empty());
    EXPECT_THAT(html, HasSubstr("</html>"));
}

TEST(ReadMetrics, IgnoresACutLastLineAndReportsOtherDamagedLines) {
    const tests::TemporaryFolder folder;
    const std::string path = folder / "metrics.jsonl";
    std::ofstream(path) << "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"loss\": 1}\n{\"st";
    EXPECT_EQ(read_metrics(path).rows(), 2u);
    for (const char* bad : {"[1]", "{\"loss\": 2}", "{", "{\"step\": \"x\"}"}) {
        std::ofstream(path) << "{\"step\": 1}\n" << bad << "\n";
        try {
            read_metrics(path);
            FAIL() << bad;
        } catch (const FileError& error) {
            EXPECT_THAT(error.what(), HasSubstr(path + ": line 2: "));
        }
    }
}

TEST(ReadMetrics, LimitsTheLengthOfLinesAndTheNumberOfMetrics) {
    const tests::TemporaryFolder folder;
    const std::string path = folder / "metrics.jsonl";
    Tree row{{"step", 1}};
    for (int i = 0; i < 1000; ++i) row.entries().push_back({str("m", i), i});
    std::ofstream(path) << to_json(row, -1) << '\n';
    const Metrics metrics = read_metrics(path);
    EXPECT_EQ(metrics.names().size(), Metrics::kMaxNames);
    EXPECT_EQ(metrics.curve("m255").y, std::vector<double>{255});
    EXPECT_TRUE(metrics.curve("m256").y.empty());
    std::ofstream(path) << "{\"step\": 1}\n{\"step\": 2, \"a\": [" << std::string(1 << 20, ' ')
                        << "]}\n";
    try {
        read_metrics(path);
        FAIL();
    } catch (const FileError& error) {
        EXPECT_THAT(error.what(),
                    HasSubstr("line 2: must have at most 1048576 bytes: it has 1048596"));
    }
}

TEST(Chart, KeepsEndpointsAndExtremesWhenThinned) {
    Curve curve;
    for (int i = 0; i < 10000; ++i) {
        curve.x.push_back(i);
        curve.y.push_back(i == 5432 ? 100 : i == 7000 ? -3 : 1);
    }
    const Curve thin = thinned(curve, 100);
    EXPECT_LE(thin.x.size(), 100u);
    EXPECT_EQ(thin.x.front(), 0);
    EXPECT_EQ(thin.x.back(), 9999);
    EXPECT_THAT(thin.y, testing::Contains(100));
    EXPECT_THAT(thin.y, testing::Contains(-3));
    EXPECT_TRUE(std::is_sorted(thin.x.begin(), thin.x.end()));
    EXPECT_EQ(thinned(thin, 100).x, thin.x);
}

TEST(Chart, DrawsAMovingAverageOfLongCurves) {
    Curve curve;
    for (int i = 0; i < 200; ++i) curve.x.push_back(i), curve.y.push_back(i % 2);
    EXPECT_EQ(count(to_svg({.title = "t", .curves = {curve}}), "<path"), 2u);
    const Curve mean = smoothed(curve, 4);
    EXPECT_EQ(mean.y[0], (0 + 1 + 0) / 3.0);
    EXPECT_EQ(mean.y[100], (0 + 1 + 0 + 1 + 0) / 5.0);
    curve.x.resize(50), curve.y.resize(50);
    EXPECT_EQ(count(to_svg({.title = "t", .curves = {curve}}), "<path"), 1u);
}

TEST(Chart, UsesALogarithmicScaleForWideRanges) {
    Chart chart{.title = "t", .curves = {{.name = "a", .x = {1, 2}, .y = {1e-4, 1}}}};
    EXPECT_THAT(to_svg(chart), HasSubstr(" log\""));
    chart.curves[0].y = {0, 1};
    EXPECT_THAT(to_svg(chart), Not(HasSubstr(" log\"")));
}

TEST(Chart, DrawsConstantsAndSinglePoints) {
    for (const std::vector<double>& y : {std::vector<double>{2, 2}, {2}, {0}}) {
        Chart chart{.title = "t", .curves = {{.name = "a", .x = {}, .y = y}}};
        for (std::size_t i = 0; i < y.size(); ++i) chart.curves[0].x.push_back(1.0 + double(i));
        const std::string svg = to_svg(chart);
        EXPECT_THAT(svg, HasSubstr("<path"));
        EXPECT_THAT(svg, Not(HasSubstr("nan")));
        EXPECT_THAT(svg, Not(HasSubstr("inf")));
    }
}

TEST(Chart, DrawsFewGridLinesForTinyDifferences) {
    for (const double low : {3e-4, 1.0, 1e17, -1e17}) {
        const double high = std::nextafter(low, std::numeric_limits<double>::infinity());
        const std::string svg =
            to_svg({.title = "t", .curves = {{.name = "a", .x = {1, 2}, .y = {low, high}}}});
        EXPECT_LE(count(svg, "class=\"grid\""), 8u) << low;
        EXPECT_THAT(svg, Not(HasSubstr("nan"))) << low;
    }
}

TEST(FormatValue, LimitsByteCountsToAboutNineExabytes) {
    EXPECT_EQ(format_value(1e300, 'b'), format_value(9e18, 'b'));
}

TEST(Chart, IsEmptyWithoutPoints) {
    EXPECT_EQ(to_svg({.title = "t", .curves = {}}), "");
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(to_svg({.title = "t", .curves = {{.name = "a", .x = {1}, .y = {nan}}}}), "");
}

TEST(DataUri, EncodesBytesInBase64) {  // the first five are test vectors of RFC 4648, section 10
    EXPECT_EQ(data_uri("t", ""), "data:t;base64,");
    EXPECT_EQ(data_uri("t", "f"), "data:t;base64,Zg==");
    EXPECT_EQ(data_uri("t", "fo"), "data:t;base64,Zm8=");
    EXPECT_EQ(data_uri("t", "foo"), "data:t;base64,Zm9v");
    EXPECT_EQ(data_uri("t", "foob"), "data:t;base64,Zm9vYg==");
    EXPECT_EQ(data_uri("t", "\xff\xfe\xfd"), "data:t;base64,//79");
}

}  // namespace
}  // namespace axle::trainer
