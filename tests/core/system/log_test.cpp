#include "core/system/log.h"

#include <locale>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace axle {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A fixture that captures log messages, and then restores the default sink and policy.
class ErrorReport : public testing::Test {
  protected:
    ErrorReport() {
        set_log_sink([this](LogLevel level, std::string_view text) {
            messages_.push_back(str(static_cast<int>(level), ' ', text));
        });
    }
    ~ErrorReport() override {
        set_log_sink({});
        set_error_policy(ErrorPolicy::report);
    }
    static std::exception_ptr full_disk() {
        return std::make_exception_ptr(FileError("a.csv: can't write"));
    }

    std::vector<std::string> messages_;
};

TEST_F(ErrorReport, LogsWarningByDefault) {
    EXPECT_EQ(error_policy(), ErrorPolicy::report);
    report_error(full_disk(), {"tracker '", "csv", "': "}, "; training continues");
    EXPECT_THAT(messages_, ElementsAre("2 tracker 'csv': a.csv: can't write; training continues"));
}

TEST_F(ErrorReport, RethrowsUnderRaisePolicy) {
    set_error_policy(ErrorPolicy::raise);
    EXPECT_THROW(report_error(full_disk(), {"tracker"}), FileError);
    EXPECT_THROW(report_error(std::make_exception_ptr(7)), int);
    EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(ErrorReport, LogsInNoexceptFunctionsUnderRaisePolicy) {
    set_error_policy(ErrorPolicy::raise);
    report_error_noexcept(full_disk());
    report_error_noexcept(std::make_exception_ptr(7), {"close: "});
    EXPECT_THAT(messages_,
                ElementsAre("2 a.csv: can't write", "2 close: an exception of an unknown type"));
}

TEST_F(ErrorReport, DoesNothingUnderIgnorePolicy) {
    set_error_policy(ErrorPolicy::ignore);
    report_error(full_disk());
    report_error_noexcept(full_disk());
    EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(ErrorReport, IgnoresExceptionsOfSink) {
    set_log_sink([](LogLevel, std::string_view) { throw FileError("the log is full"); });
    EXPECT_NO_THROW(report_error(full_disk()));
}

TEST(DefaultLogSink, WritesWarningsAndErrorsToStderr) {
    testing::internal::CaptureStderr();
    log(LogLevel::info, "loaded");
    log(LogLevel::warning, "tracker '", 7, "'");
    log(LogLevel::error, "lost");
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "axle: warning: tracker '7'\naxle: error: lost\n");
}

}  // namespace
}  // namespace axle
