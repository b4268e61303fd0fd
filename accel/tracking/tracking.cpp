#include "accel/tracking/tracking.h"

#include <algorithm>
#include <mutex>

#include "accel/tracking/csv.h"
#include "accel/tracking/jsonl.h"
#include "accel/tracking/mlflow.h"
#include "accel/tracking/tensorboard.h"
#include "core/system/log.h"
#include "core/text/text.h"

namespace axle::accel {
namespace {

struct Registry {
    std::mutex mutex;
    std::vector<TrackerClass> classes;
};

template <class T>
TrackerClass built_in(const char* name) {
    return {name, true, [](const TrackerRun& run) { return std::make_shared<T>(run); }};
}

Registry& registry() {
    static Registry& instance = *new Registry{
        .mutex = {},
        .classes = {built_in<TensorBoardTracker>("tensorboard"),
                    built_in<JsonlTracker>("jsonl"),
                    built_in<CsvTracker>("csv"),
                    {"mlflow", false,
                     [](const TrackerRun& run) { return std::make_shared<MlflowTracker>(run); }}}};
    return instance;
}

std::vector<TrackerClass> known_classes() {
    const std::lock_guard lock(registry().mutex);
    return registry().classes;
}

constexpr const char* kLoggerTypes[] = {"all",      "aim",    "tensorboard", "wandb",   "trackio",
                                        "comet_ml", "mlflow", "clearml",     "dvclive", "swanlab"};

// The names of Accelerate's trackers that are not available, because they need Python clients.
constexpr const char* kUnavailable[] = {"wandb",   "comet_ml", "aim",    "clearml",
                                        "dvclive", "swanlab",  "trackio"};

bool is_unavailable(const std::string& name) {
    return std::find(std::begin(kUnavailable), std::end(kUnavailable), name) !=
           std::end(kUnavailable);
}

template <class List>
auto find_name(List& list, const std::string& name) {
    return std::find_if(list.begin(), list.end(), [&](const auto& e) { return e.name == name; });
}

[[noreturn]] void throw_unknown(const std::string& name, const std::vector<TrackerClass>& known) {
    std::vector<std::string> names = {"all"};
    for (const TrackerClass& c : known) names.push_back(c.name);
    std::string all;
    for (const std::string& n : names) all += (all.empty() ? "" : ", ") + n;
    names.insert(names.end(), std::begin(kUnavailable), std::end(kUnavailable));
    const std::string meant = nearest(name, names);
    std::string hint = "; expected one of ";
    if (is_unavailable(meant))
        hint = str("; ", in_quotes(meant), " needs Python and is not available; expected one of ");
    else if (!meant.empty())
        hint = str("; did you mean ", in_quotes(meant), "? Expected one of ");
    throw ValueError(str("log_with: unknown tracker ", in_quotes(name), hint, all));
}

const Tree& of_tracker(const Tree& kwargs, const std::string& name) {
    static const Tree& none = *new Tree;
    if (kwargs.is_null()) return none;
    const Tree* found = kwargs.find(name);
    return found == nullptr ? none : *found;
}

// Throws ValueError if a tree is not a map. A null tree is allowed, because Tree {} is null.
void require_map(const char* what, const Tree& tree) {
    if (!tree.is_map() && !tree.is_null()) throw ValueError(str(what, " must be a map: ", tree));
}

}  // namespace

const char* name_of(LoggerType type) { return kLoggerTypes[static_cast<std::size_t>(type)]; }

void register_tracker_class(TrackerClass tracker_class) {
    if (tracker_class.name.empty() || tracker_class.name == "all" || !tracker_class.create)
        throw UsageError(
            str("register_tracker_class: the name must not be empty or 'all', and create must be "
                "set: name '",
                tracker_class.name, "'"));
    const std::string name = tracker_class.name;
    bool replaced = false;
    {
        const std::lock_guard lock(registry().mutex);
        auto& classes = registry().classes;
        const auto found = find_name(classes, name);
        replaced = found != classes.end();
        if (replaced)
            *found = std::move(tracker_class);
        else
            classes.push_back(std::move(tracker_class));
    }
    if (replaced) axle::log(LogLevel::warning, "register_tracker_class: '", name, "' is replaced");
}

// Wraps a tracker and reports the tracker's first exception. Does nothing before start(), after
// finish(), after a failed start() or resume(), and on processes that do not call the tracker.
class Tracking::Guard : public Tracker {
  public:
    // Creates a guard of `tracker`. If `tracker` is nullptr, all methods do nothing.
    Guard(std::shared_ptr<Tracker> tracker, Tracking& tracking, bool main_process)
        : tracker_(std::move(tracker)), tracking_(tracking) {
        if (tracker_ == nullptr) return;
        attempt("name", [&] { name_ = tracker_->name(); });
        attempt("main_process_only", [&] { main_process_only_ = tracker_->main_process_only(); });
        is_used_ = main_process || !main_process_only_;
    }

    std::optional<std::int64_t> last_step() const { return last_step_; }
    Tracker& unwrapped() { return tracker_ == nullptr ? *this : *tracker_; }

    std::string name() const override { return name_; }
    bool main_process_only() const override { return main_process_only_; }
    void start() override {
        if (is_used_) running_ = attempt("start", [&] { tracker_->start(); });
    }
    void store_init_configuration(const Tree& config) override {
        if (running_)
            attempt("store_init_configuration",
                    [&] { tracker_->store_init_configuration(config); });
    }
    void log(const Tree& values, std::optional<std::int64_t> step, const Tree& options) override {
        if (!begin(step)) return;
        count(step);
        attempt("log", [&] { tracker_->log(values, step, options); });
    }
    void log_images(const Tree& images, std::optional<std::int64_t> step,
                    const Tree& options) override {
        if (!begin(step)) return;
        if (step) count(step);
        attempt("log_images", [&] { tracker_->log_images(images, step, options); });
    }
    void log_table(const std::string& table, const std::vector<std::string>& columns,
                   const Tree& rows, std::optional<std::int64_t> step,
                   const Tree& options) override {
        if (!begin(step)) return;
        count(step);
        attempt("log_table", [&] { tracker_->log_table(table, columns, rows, step, options); });
    }
    void finish() noexcept override {
        if (!std::exchange(running_, false)) return;
        try {
            tracker_->finish();
        } catch (...) {
            if (should_report())
                report_error_noexcept(std::current_exception(), {"tracker '", name_, "': finish: "},
                                      kContinues);
        }
    }

  private:
    static constexpr std::string_view kContinues =
        "; training continues, and further errors of this tracker are not reported";

    // Calls `call` and returns whether it succeeded. Reports only the tracker's first error; with
    // ErrorPolicy::raise, throws every error.
    template <class F>
    bool attempt(const char* method, F&& call) {
        try {
            call();
            return true;
        } catch (...) {
            if (should_report())
                report_error(std::current_exception(), {"tracker '", name_, "': ", method, ": "},
                             kContinues);
        }
        return false;
    }

    // Resumes the tracker before its first values if a checkpoint was loaded. Returns whether the
    // tracker can log.
    bool begin(std::optional<std::int64_t> step) {
        if (!running_ || std::exchange(begun_, true) || !tracking_.resumed_) return running_;
        if (const auto logged = tracking_.loaded_.extract(name_)) last_step_ = logged.mapped();
        if (last_step_) step = std::max(step.value_or(0), *last_step_ + 1);
        running_ = false;  // before finish(), which may throw
        running_ = attempt("resume", [&] { tracker_->resume(step); });
        return running_;
    }

    // Sets last_step_ to the largest step so far. Values without a step get the step after it.
    void count(std::optional<std::int64_t> step) {
        const std::int64_t last = last_step_.value_or(0);
        last_step_ = step ? std::max(*step, last) : last + 1;
    }

    bool should_report() {
        return error_policy() == ErrorPolicy::raise || !std::exchange(reported_, true);
    }

    std::shared_ptr<Tracker> tracker_;
    Tracking& tracking_;
    std::string name_ = "unnamed";
    bool main_process_only_ = true;
    bool is_used_ = false;  // whether the tracker is called on this process
    bool running_ = false;
    bool begun_ = false;  // whether values were logged since start()
    bool reported_ = false;
    std::optional<std::int64_t> last_step_;
};

Tracking::Tracking(const std::vector<LogWith>& log_with, std::string logging_dir, bool main_process)
    : logging_dir_(std::move(logging_dir)),
      main_process_(main_process),
      blank_(std::make_unique<Guard>(nullptr, *this, main_process)) {
    const std::vector<TrackerClass> known = known_classes();
    std::string dropped;
    const auto add = [&](const TrackerClass& c) {
        if (find_name(chosen_, c.name) != chosen_.end()) return;
        if (c.requires_logging_directory && logging_dir_.empty())
            throw ValueError(
                str("log_with: '", c.name, "' needs a folder; set logging_dir or project_dir"));
        chosen_.emplace_back(c.name);
    };
    for (const LogWith& choice : log_with) {
        if (choice.tracker != nullptr) {
            if (choice.tracker->requires_logging_directory() && logging_dir_.empty())
                throw ValueError(str("log_with: '", choice.tracker->name(),
                                     "' needs a folder; set logging_dir or project_dir"));
            chosen_.push_back(choice);
        } else if (choice.name == "all") {
            std::for_each(known.begin(), known.end(), add);
        } else if (const auto found = find_name(known, choice.name); found != known.end()) {
            add(*found);
        } else if (is_unavailable(choice.name)) {
            dropped += (dropped.empty() ? "" : ", ") + choice.name;
        } else {
            throw_unknown(choice.name, known);
        }
    }
    if (!dropped.empty())
        report_error(std::make_exception_ptr(
            ValueError(str("log_with: trackers that need Python are left out: ", dropped,
                           "; you can register your own tracker under such a name"))));
}

Tracking::~Tracking() { finish(); }

void Tracking::init(const std::string& project_name, const Tree& config, const Tree& init_kwargs) {
    require_map("init_trackers: config", config);
    require_map("init_trackers: init_kwargs", init_kwargs);
    std::vector<std::unique_ptr<Guard>> guards;
    const std::vector<TrackerClass> known = known_classes();
    for (const LogWith& choice : chosen_) {
        std::shared_ptr<Tracker> tracker = choice.tracker;
        if (tracker == nullptr)
            tracker =
                find_name(known, choice.name)
                    ->create({project_name, logging_dir_, of_tracker(init_kwargs, choice.name)});
        if (tracker == nullptr)
            throw UsageError(str("init_trackers: create() of the tracker class '", choice.name,
                                 "' returned null"));
        guards.push_back(std::make_unique<Guard>(std::move(tracker), *this, main_process_));
    }
    finish();
    initialized_ = true;
    guards_ = std::move(guards);
    for (const auto& guard : guards_) guard->start();
    for (const auto& guard : guards_)
        if (!config.is_null()) guard->store_init_configuration(config);
}

void Tracking::log(const Tree& values, std::optional<std::int64_t> step, const Tree& log_kwargs) {
    if (values.is_null()) return log(Tree::map(), step, log_kwargs);
    require_map("log: values", values);
    require_map("log: log_kwargs", log_kwargs);
    if (!initialized_) warn_before_init();
    for (const auto& guard : guards_)
        guard->log(values, step, of_tracker(log_kwargs, guard->name()));
}

void Tracking::warn_before_init() {
    if (!main_process_ || std::exchange(warned_, true)) return;
    axle::log(LogLevel::warning,
              "log: the values are not logged, because init_trackers() was not called before",
              chosen_.empty() ? "; set log_with in the options of the Accelerator, too" : "");
}

LoggedSteps Tracking::logged_steps() const {
    LoggedSteps steps = loaded_;
    for (const auto& guard : guards_)
        if (const auto step = guard->last_step()) steps[guard->name()] = *step;
    return steps;
}

void Tracking::resume(LoggedSteps logged) {
    resumed_ = true;
    loaded_ = std::move(logged);
}

Tracker& Tracking::get(const std::string& name, bool unwrap) {
    std::string names;
    for (const auto& guard : guards_) {
        if (guard->name() == name) return unwrap ? guard->unwrapped() : *guard;
        names += (names.empty() ? "" : ", ") + guard->name();
    }
    if (guards_.empty()) return *blank_;
    throw ValueError(str("get_tracker: unknown tracker '", name, "'; expected one of ", names));
}

std::vector<Tracker*> Tracking::trackers() const {
    std::vector<Tracker*> all;
    all.reserve(guards_.size());
    for (const auto& guard : guards_) all.push_back(guard.get());
    return all;
}

void Tracking::finish() noexcept {
    for (const auto& guard : guards_) guard->finish();
}

}  // namespace axle::accel
