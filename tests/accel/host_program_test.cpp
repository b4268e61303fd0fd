// Tests Axle inside a host program: it must not change the state of the process, and its output
// must not depend on that state.
#include <algorithm>
#include <array>
#include <atomic>
#include <cfenv>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <locale>
#include <map>
#include <new>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accel/state/checkpoint.h"
#include "accel/utils/progress.h"
#include "accel/utils/text.h"
#include "core/files/file.h"
#include "core/system/log.h"
#include "gmock/gmock.h"
#include "kernels/float_control.h"
#include "kernels/thread_pool.h"
#include "nlohmann/json.hpp"
#include "tests/accel/full_training.h"
#include "tests/temporary_folder.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace axle::tests {
namespace {

namespace fs = std::filesystem;

std::string link_text(const fs::path& link) {
    std::error_code ignored;
    return fs::read_symlink(link, ignored).string();
}

std::string signals() {
    std::string text;
    for (int s = 1; s < NSIG; ++s) {
        struct sigaction action = {};
        if (::sigaction(s, nullptr, &action) != 0) continue;
        text += str(s, ' ', reinterpret_cast<std::uintptr_t>(action.sa_handler), ' ',
                    action.sa_flags, ' ', sigismember(&action.sa_mask, SIGUSR1), '\n');
    }
    return text;
}

// Returns the state of the calling thread as text: signal mask, number of CPUs, name and
// floating-point settings.
std::string thread_state() {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    std::string text;
    for (int s = 1; s < NSIG; ++s) text += static_cast<char>('0' + sigismember(&mask, s));
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    sched_getaffinity(0, sizeof cpus, &cpus);
    std::array<char, 16> name = {};
    prctl(PR_GET_NAME, name.data());
    return str(text, ' ', CPU_COUNT(&cpus), ' ', name.data(), ' ', std::fegetround(), ' ',
               fegetexcept(), ' ', kernels::float_control());
}

std::string streams() {
    std::string text;
    for (const std::ios* s :
         {static_cast<std::ios*>(&std::cout), static_cast<std::ios*>(&std::cerr),
          static_cast<std::ios*>(&std::clog), static_cast<std::ios*>(&std::cin)})
        text += str(s->flags(), ' ', s->precision(), ' ', s->width(), ' ', s->fill(), ' ',
                    static_cast<const void*>(s->tie()), ' ', static_cast<const void*>(s->rdbuf()),
                    ' ', s->exceptions(), ' ', s->rdstate(), '\n');
    return text;
}

// Returns the process state that a library must not change, by name.
std::map<std::string, std::string> process_state() {
    std::map<std::string, std::string> state;
    state["signals"] = signals();
    state["thread"] = thread_state();
    state["streams"] = streams();
    const mode_t mask = ::umask(0);
    ::umask(mask);
    state["umask"] = str(mask);
    state["folder"] = fs::current_path().string();
    state["C locale"] = std::setlocale(LC_ALL, nullptr);
    state["C++ locale"] = str(std::use_facet<std::numpunct<char>>(std::locale()).decimal_point());
    for (char** e = environ; *e != nullptr; ++e) state["environment"] += str(*e, '\n');
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator("/proc/self/fd"))
        files.push_back(entry.path().filename().string() + ' ' + link_text(entry.path()));
    // Excludes the descriptor used to read the folder.
    std::erase_if(files, [](const std::string& f) { return f.ends_with("/fd"); });
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) state["files"] += file + '\n';
    state["handlers"] = str(reinterpret_cast<std::uintptr_t>(std::get_terminate()), ' ',
                            reinterpret_cast<std::uintptr_t>(std::get_new_handler()));
    state["children"] = str(::waitpid(-1, nullptr, WNOHANG));
    return state;
}

struct Commas : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
    std::string do_truename() const override { return "wahr"; }
    std::string do_falsename() const override { return "falsch"; }
};

// Returns the folder of the locale de_DE.UTF-8, or "" if it cannot be created. localedef compiles
// it in a few seconds.
std::string compiled_locale() {
    static const TemporaryFolder folder;
    static const std::string command = "localedef -i de_DE -f UTF-8 " + folder / "de_DE.UTF-8";
    static const int status = std::system((command + " 2>/dev/null").c_str());
    return status == 0 ? folder.path() : "";
}

// A scope in which the global C++ locale has decimal commas. The C locale also has decimal commas
// if the system has such a locale or can create one.
class ForeignLocale {
  public:
    ForeignLocale()
        : before_(std::locale::global(std::locale(std::locale::classic(), new Commas))),
          c_before_(std::setlocale(LC_ALL, nullptr)) {
        for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8"})
            if (std::setlocale(LC_ALL, name) != nullptr) return;
        if (compiled_locale().empty()) return;
        ::setenv("LOCPATH", compiled_locale().c_str(), 1);
        std::setlocale(LC_ALL, "de_DE.UTF-8");
        ::unsetenv("LOCPATH");
    }
    ~ForeignLocale() {
        std::locale::global(before_);
        std::setlocale(LC_ALL, c_before_.c_str());
    }
    ForeignLocale(const ForeignLocale&) = delete;
    ForeignLocale& operator=(const ForeignLocale&) = delete;

  private:
    std::locale before_;
    std::string c_before_;
};

// A scope in which stdout and stderr are redirected to a file.
class Redirected {
  public:
    explicit Redirected(const std::string& path) {
        std::cout.flush();
        std::fflush(nullptr);
        const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        for (int i = 0; i < 2; ++i) {
            saved_[i] = ::fcntl(i + 1, F_DUPFD_CLOEXEC, 3);
            ::dup2(file, i + 1);
        }
        ::close(file);
    }
    ~Redirected() {
        std::cout.flush();
        std::fflush(nullptr);
        for (int i = 0; i < 2; ++i) {
            ::dup2(saved_[i], i + 1);
            ::close(saved_[i]);
        }
    }
    Redirected(const Redirected&) = delete;
    Redirected& operator=(const Redirected&) = delete;

  private:
    int saved_[2] = {};
};

std::atomic<int> handled = 0;
std::atomic<int> handled_by_a_guest = 0;

void count_signal(int) {
    char name[16] = {};
    prctl(PR_GET_NAME, name);
    ++handled;
    if (std::strncmp(name, "axle", 4) == 0) ++handled_by_a_guest;
}

// A host program with signal handlers, a blocked signal, stream flags and a umask.
class Host {
  public:
    Host() {
        struct sigaction ours = {};
        ours.sa_handler = count_signal;
        ours.sa_flags = SA_RESTART;
        for (std::size_t i = 0; i < std::size(kSignals); ++i)
            ::sigaction(kSignals[i], &ours, &before_[i]);
        sigset_t blocked;
        sigemptyset(&blocked);
        sigaddset(&blocked, SIGUSR2);
        pthread_sigmask(SIG_BLOCK, &blocked, &mask_);
        std::cout.precision(3);
        std::cerr << std::hex;
        ::umask(027);
    }
    ~Host() {
        for (std::size_t i = 0; i < std::size(kSignals); ++i)
            ::sigaction(kSignals[i], &before_[i], nullptr);
        pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
        std::cout.precision(6);
        std::cerr << std::dec;
        ::umask(022);
    }
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;

  private:
    static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGPIPE, SIGUSR1, SIGCHLD, SIGALRM};
    struct sigaction before_[std::size(kSignals)] = {};
    sigset_t mask_ = {};
};

// Returns the sorted relative paths of the files in a folder. Names of TensorBoard files contain
// the time, so they differ between runs.
std::vector<std::string> files_of(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
        if (entry.is_regular_file()) names.push_back(fs::relative(entry.path(), folder).string());
    std::sort(names.begin(), names.end());
    return names;
}

bool is_events(const std::string& name) { return name.find("events.out") != std::string::npos; }

int threads_of_the_process() {
    const fs::directory_iterator tasks("/proc/self/task");
    return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

class EmbeddedAxle : public testing::Test {
  protected:
    void SetUp() override { kernels::set_num_threads(3); }
    void TearDown() override { kernels::set_num_threads(2); }
};

TEST_F(EmbeddedAxle, DoesNotChangeProcessWideStateOfTheHostProgram) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    train(folder / "first", [] {});  // the first run performs one-time setup
    const Host host;
    const ForeignLocale locale;
    std::srand(42);
    const int first = std::rand(), second = std::rand();
    std::srand(42);
    EXPECT_EQ(std::rand(), first);
    handled = handled_by_a_guest = 0;
    std::map<std::string, std::string> before, after;
    {
        const Redirected output(folder / "output");
        before = process_state();
        train(folder / "second", [] { ::kill(::getpid(), SIGUSR1); });
        after = process_state();
    }
    EXPECT_EQ(before, after);
    EXPECT_EQ(read_file(folder / "output"), "");
    EXPECT_EQ(std::rand(), second);
    EXPECT_EQ(handled_by_a_guest, 0);
    EXPECT_GE(handled, 1);
}

TEST_F(EmbeddedAxle, DoesNotChangeTheStateOfThreadsOfTheHostProgram) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    std::atomic<bool> ready = false, done = false;
    std::string before, after;
    std::thread host([&] {
        prctl(PR_SET_NAME, "host");
        std::fesetround(FE_DOWNWARD);
        sigset_t blocked;
        sigfillset(&blocked);
        pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
        before = thread_state();
        ready = true;
        while (!done) std::this_thread::yield();
        after = thread_state();
    });
    while (!ready) std::this_thread::yield();
    train(folder.path(), [] {});
    done = true;
    host.join();
    EXPECT_EQ(before, after);
}

TEST_F(EmbeddedAxle, WritesFilesThatDoNotDependOnTheLocale) {
    const TemporaryFolder plain(FolderStorage::in_memory), foreign(FolderStorage::in_memory);
    train(plain.path(), [] {});
    {
        const ForeignLocale locale;
        std::ostringstream number;
        number << 1234567;
        ASSERT_EQ(number.str(), "1.234.567");
        if (std::localeconv()->decimal_point[0] != ',') RecordProperty("c_locale", "none fits");
        train(foreign.path(), [] {});
    }
    const auto expected = files_of(plain.path()), written = files_of(foreign.path());
    ASSERT_EQ(written.size(), expected.size());
    EXPECT_GE(written.size(), 15u);
    for (std::size_t i = 0; i < written.size(); ++i) {
        const std::string ours = foreign / written[i], theirs = plain / expected[i];
        if (is_events(written[i])) {
            EXPECT_EQ(fs::file_size(ours), fs::file_size(theirs));
            const std::size_t pid = written[i].find(str('.', ::getpid(), '.'));
            EXPECT_NE(pid, std::string::npos) << written[i];
            continue;
        }
        EXPECT_EQ(written[i], expected[i]);
        // The recorded times and the ids of the runs differ between the runs, so these files are
        // only required to be valid JSON.
        if (written[i].starts_with("profile/") || written[i].ends_with("manifest.json"))
            EXPECT_TRUE(nlohmann::json::accept(read_file(ours))) << written[i];
        else
            EXPECT_EQ(read_file(ours), read_file(theirs)) << written[i];
    }
}

TEST_F(EmbeddedAxle, StartsNoThreadsIfNumThreadsIsOne) {
    kernels::set_num_threads(1);
    const int before = threads_of_the_process();
    Training training(3);
    int most = 0;
    training.run(1, [&] { most = std::max(most, threads_of_the_process()); });
    EXPECT_EQ(most, before);
}

TEST_F(EmbeddedAxle, RaisesNoFloatingPointTrapsInTheHostProgram) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);
    const Tensor zero = zeros({100000});
    const double infinite = (1 / zero).sum().item();
    const bool undefined = std::isnan((zero / zero).sum().item());
    train(folder.path(), [] {});
    const int traps = fegetexcept();
    fedisableexcept(FE_ALL_EXCEPT);
    EXPECT_TRUE(std::isinf(infinite));
    EXPECT_TRUE(undefined);
    EXPECT_EQ(traps, FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);
}

TEST_F(EmbeddedAxle, UsesTheRoundingModeOfTheCallerOnAllThreads) {
    std::atomic<int> arrived = 0;
    std::array<std::uint64_t, 2> controls = {};
    const std::uint64_t nearest = kernels::float_control();
    std::fesetround(FE_UPWARD);
    const std::uint64_t upward = kernels::float_control();
    kernels::parallel(2, [&](std::int64_t task) {
        ++arrived;
        while (arrived < 2) std::this_thread::yield();  // ensures that two threads take part
        controls[static_cast<std::size_t>(task)] = kernels::float_control();
    });
    std::fesetround(FE_TONEAREST);
    EXPECT_NE(upward, nearest);
    EXPECT_THAT(controls, testing::Each(upward));
}

TEST_F(EmbeddedAxle, ThrowsTrackerErrorsUnderErrorPolicyRaiseExceptInEndTraining) {
    struct Broken : accel::Tracker {
        std::string name() const override { return "broken"; }
        void log(const Tree&, std::optional<std::int64_t>, const Tree&) override {
            throw FileError("the disk is full");
        }
        void finish() override { throw FileError("the disk is full"); }
    };
    std::vector<std::string> messages;
    set_log_sink([&](LogLevel, std::string_view text) { messages.emplace_back(text); });
    {
        accel::Accelerator accelerator({.log_with = {std::make_shared<Broken>()}});
        accelerator.init_trackers("run");
        set_error_policy(ErrorPolicy::raise);
        EXPECT_THROW(accelerator.log({{"loss", 1}}), FileError);
        EXPECT_THROW(accelerator.log({{"loss", 1}}), FileError);
        EXPECT_EQ(messages.size(), 0u);
        set_error_policy(ErrorPolicy::ignore);
        accelerator.log({{"loss", 1}});
        EXPECT_EQ(messages.size(), 0u);
        set_error_policy(ErrorPolicy::raise);
        EXPECT_NO_THROW(accelerator.end_training());
    }
    set_error_policy(ErrorPolicy::report);
    set_log_sink({});
    ASSERT_EQ(messages.size(), 1u);
    EXPECT_THAT(messages[0], testing::HasSubstr("tracker 'broken': finish: the disk is full"));
}

}  // namespace
}  // namespace axle::tests
