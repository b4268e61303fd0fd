// Tests struct configurations that are read from YAML and the command line.
#include "accel/config/structured_config.h"

#include <fstream>
#include <string>
#include <vector>

#include "accel/config/yaml.h"
#include "core/files/file.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using accel::ConfigFields;
using accel::Required;
using tests::expect_error;

struct Inner {
    Required<std::int64_t> size;
    double rate = 0.5;
    std::optional<double> clip = 1.0;

    void visit(ConfigFields& v) { v("size", size), v("rate", rate), v("clip", clip); }
};

struct Outer {
    Required<std::string> name;
    bool fast = false;
    std::uint64_t seed = 3;
    std::string precision = "fp16";
    std::vector<std::string> report_to;
    Inner inner;

    void visit(ConfigFields& v) {
        v("name", name), v("fast", fast), v("seed", seed), v("precision", precision);
        v("report_to", report_to), v("inner", inner);
    }
};

class StructuredConfig : public testing::Test {
  protected:
    std::string file(const std::string& text) {
        std::ofstream(folder_ / "c.yaml") << text;
        return folder_ / "c.yaml";
    }
    Tree load(const std::string& text, const std::vector<std::string>& overrides = {}) {
        config_ = {};
        return accel::load_config(config_, file(text), overrides);
    }
    void expect_refused(const std::string& text, const std::vector<std::string>& overrides,
                        std::initializer_list<const char*> words) {
        expect_error<ValueError>(words, [&] { load(text, overrides); });
    }

    tests::TemporaryFolder folder_{tests::FolderStorage::in_memory};
    Outer config_;
};

// Covers 25.structured, 25.ConfigStore.
TEST_F(StructuredConfig, PrefersCommandLineToFileAndDefaults) {
    const Tree resolved =
        load("name: a\nseed: 5\ninner: {size: 2, rate: 1e-3}\n", {"inner.size=7", "fast=true"});
    EXPECT_EQ(*config_.name, "a");
    EXPECT_TRUE(config_.fast);
    EXPECT_EQ(config_.seed, 5u);
    EXPECT_EQ(config_.inner.size, 7);
    EXPECT_EQ(config_.inner.rate, 1e-3);
    EXPECT_EQ(to_json(resolved, -1),
              to_json(from_json(R"({"name": "a", "fast": true, "seed": 5, "precision": "fp16",
                  "report_to": [], "inner": {"size": 7, "rate": 0.001, "clip": 1.0}})"),
                      -1));
    // The resolved configuration is itself a valid file with the same result.
    EXPECT_EQ(to_json(load(accel::to_yaml(resolved))), to_json(resolved));
}

// Covers 25.ConfigStore.
TEST_F(StructuredConfig, ReportsAllMissingOptionsAndWritesThemAsQuestionMarks) {
    expect_refused("", {}, {"config: ", "missing: name, inner.size;", "name=VALUE"});
    expect_refused("name: ???\ninner: {size: null}\n", {},
                   {"config: ", "missing: name, inner.size"});
    expect_refused("name: a\ninner: {size: 1}\nprecision: ???\n", {},
                   {"config: ", "missing: precision"});
    config_ = {};
    EXPECT_EQ(accel::config_tree(config_)["inner"]["size"].string(), "???");
}

TEST_F(StructuredConfig, RejectsUnknownKeysAndListsValidKeys) {
    expect_refused("nam: a\n", {}, {"config: ", "'nam'", "did you mean name?", "report_to, inner"});
    expect_refused("name: a\n", {"inner.sise=3"},
                   {"config: ", "'inner.sise'", "did you mean inner.size?", "size, rate, clip"});
    expect_refused("name: a\n", {"outer.size=3"}, {"config: ", "'outer'"});
    expect_refused("name: a\n", {"inner=3"}, {"config: ", "inner must be a group of options: '3'"});
}

TEST_F(StructuredConfig, ConvertsValuesToTheTypeOfTheOptionOrRejectsThem) {
    const std::vector<std::string> enough = {"name=7", "inner.size=1"};
    const auto with = [&](const std::string& one) {
        std::vector<std::string> all = enough;
        all.push_back(one);
        return all;
    };
    load("", enough);
    EXPECT_EQ(*config_.name, "7");
    load("", with("inner.clip=null"));
    EXPECT_FALSE(config_.inner.clip.has_value());
    load("", with("report_to=[a, b]"));
    EXPECT_EQ(config_.report_to, (std::vector<std::string>{"a", "b"}));
    load("", with("report_to=a,b"));
    EXPECT_EQ(config_.report_to, (std::vector<std::string>{"a", "b"}));
    load("precision: no\nname: 1.5\nreport_to: [x]\nseed: '12'\n", {"inner.size=1"});
    EXPECT_EQ(config_.precision, "no");
    EXPECT_EQ(*config_.name, "1.5");
    EXPECT_EQ(config_.seed, 12u);
    expect_refused("", with("inner.size=1.5"),
                   {"config: ", "inner.size must be an integer: '1.5'"});
    expect_refused("", with("inner.rate=fast"),
                   {"config: ", "inner.rate must be a number: 'fast'"});
    expect_refused("", with("seed=-1"), {"config: ", "seed must be a non-negative integer: '-1'"});
    expect_refused("", with("fast=maybe"), {"config: ", "fast must be true or false: 'maybe'"});
    expect_refused("inner: {size: [1]}\n", {"name=a"},
                   {"config: ", "inner.size must be an integer"});
    expect_refused("report_to: 3\n", enough, {"config: ", "report_to must be a list of names"});
}

TEST_F(StructuredConfig, RejectsInvalidFilesAndOverrides) {
    expect_refused("- a\n", {}, {folder_.path().c_str(), "c.yaml", "map of groups"});
    expect_refused("name: [\n", {}, {folder_.path().c_str(), "c.yaml", "not YAML"});
    Outer config;
    expect_error<UsageError>({"config: ", "group.key=value: 'name'"},
                             [&] { accel::load_config(config, "", {"name"}); });
    expect_error<UsageError>({"config: ", "group.key=value: '=3'"},
                             [&] { accel::load_config(config, "", {"=3"}); });
    expect_error<FileError>({folder_.path().c_str(), "none.yaml"},
                            [&] { accel::load_config(config, folder_ / "none.yaml", {}); });
}

}  // namespace
}  // namespace axle
