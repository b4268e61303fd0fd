#include "core/log.h"

#include <locale>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace axle {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// What the library says while it lives, and its policies as they were.
class Trouble : public testing::Test {
  protected:
    Trouble() {
        set_log_sink([this](LogLevel level, std::string_view text) {
            said_.push_back(str(static_cast<int>(level), ' ', text));
        });
    }
    ~Trouble() override {
        set_log_sink({});
        set_error_policy(ErrorPolicy::report);
    }
    static std::exception_ptr full_disk() {
        return std::make_exception_ptr(FileError("a.csv: can't write"));
    }

    std::vector<std::string> said_;
};

TEST_F(Trouble, IsReportedUnlessTheHostSaysOtherwise) {
    EXPECT_EQ(error_policy(), ErrorPolicy::report);
    report_error(full_disk(), {"tracker '", "csv", "': "}, "; training goes on");
    EXPECT_THAT(said_, ElementsAre("2 tracker 'csv': a.csv: can't write; training goes on"));
}

TEST_F(Trouble, IsThrownAsItIs) {
    set_error_policy(ErrorPolicy::raise);
    EXPECT_THROW(report_error(full_disk(), {"tracker"}), FileError);
    EXPECT_THROW(report_error(std::make_exception_ptr(7)), int);
    EXPECT_THAT(said_, IsEmpty());
}

TEST_F(Trouble, IsReportedWhereNothingMayBeThrown) {
    set_error_policy(ErrorPolicy::raise);
    report_error_noexcept(full_disk());
    report_error_noexcept(std::make_exception_ptr(7), {"close: "});
    EXPECT_THAT(said_,
                ElementsAre("2 a.csv: can't write", "2 close: an exception of an unknown type"));
}

TEST_F(Trouble, IsIgnored) {
    set_error_policy(ErrorPolicy::ignore);
    report_error(full_disk());
    report_error_noexcept(full_disk());
    EXPECT_THAT(said_, IsEmpty());
}

TEST_F(Trouble, OfTheSinkIsSwallowed) {
    set_log_sink([](LogLevel, std::string_view) { throw FileError("the log is full"); });
    EXPECT_NO_THROW(report_error(full_disk()));
}

TEST(DefaultSink, WritesWarningsToStderr) {
    testing::internal::CaptureStderr();
    log(LogLevel::info, "loaded");
    log(LogLevel::warning, "tracker '", 7, "'");
    log(LogLevel::error, "lost");
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "axle: warning: tracker '7'\naxle: error: lost\n");
}

}  // namespace
}  // namespace axle
