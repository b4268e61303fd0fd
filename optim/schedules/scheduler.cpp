#include "optim/schedules/scheduler.h"

#include <algorithm>
#include <string>
#include <typeinfo>
#include <utility>

#include "core/text/type_name.h"

namespace axle::optim {
namespace {

Tree list_of(const std::vector<double>& values) {
    Tree list = Tree::list();
    for (const double value : values) list.push_back(value);
    return list;
}

std::vector<double> numbers(const Tree& list) {
    std::vector<double> values;
    for (const Tree& value : list.elements()) values.push_back(value.number());
    return values;
}

Tree to_tree(const double* value) { return *value; }
Tree to_tree(const std::int64_t* value) { return *value; }
Tree to_tree(const bool* value) { return *value; }
Tree to_tree(const std::vector<double>* value) { return list_of(*value); }
Tree to_tree(const ScheduleChoice& choice) { return choice.names[*choice.value]; }

using Write = std::function<void()>;

// make_write() returns a function that stores a loaded value, or throws ValueError. load_fields()
// adds the names of the schedule and the field to the message.
Write make_write(const Tree& tree, const ScheduleField&, double* value) {
    return [value, read = tree.number()] { *value = read; };
}
Write make_write(const Tree& tree, const ScheduleField& field, std::int64_t* value) {
    const std::int64_t read = tree.integer();
    if (read < field.at_least)
        throw ValueError(str("must be at least ", field.at_least, ": ", read));
    return [value, read] { *value = read; };
}
Write make_write(const Tree& tree, const ScheduleField&, bool* value) {
    return [value, read = tree.boolean()] { *value = read; };
}
Write make_write(const Tree& tree, const ScheduleField&, std::vector<double>* value) {
    std::vector<double> read = numbers(tree);
    if (read.size() != value->size())
        throw ValueError(str("must have ", value->size(),
                             value->size() == 1 ? " number" : " numbers", ": it has ",
                             read.size()));
    return [value, read = std::move(read)] { *value = read; };
}
Write make_write(const Tree& tree, const ScheduleField&, const ScheduleChoice& choice) {
    const auto& names = choice.names;
    const auto found = std::find(names.begin(), names.end(), tree.string());
    if (found == names.end()) {
        std::string known;
        for (const char* const name : names) known += str(known.empty() ? "" : ", ", name);
        throw ValueError(str("must be one of ", known, ": '", tree.string(), "'"));
    }
    return [value = choice.value, read = found - names.begin()] {
        *value = static_cast<std::uint8_t>(read);
    };
}

}  // namespace

PerGroup::PerGroup(double value) : values_{value}, for_all_(true) {}
PerGroup::PerGroup(std::initializer_list<double> values) : values_(values) {}
PerGroup::PerGroup(std::vector<double> values) : values_(std::move(values)) {}

std::vector<double> PerGroup::expand(const char* op, const char* what, std::size_t groups) const {
    if (for_all_) return std::vector<double>(groups, values_[0]);
    if (values_.size() != groups)
        throw ValueError(str(op, ": needs one ", what, " per group: ", values_.size(), " values, ",
                             groups, " groups"));
    return values_;
}

Scheduler::Scheduler(Scheduler&& other) {  // NOLINT(*-noexcept-move-constructor)
    if (other.hooks_)
        throw UsageError(str(type_name(typeid(other)),
                             ": a prepared schedule cannot be moved: an Accelerator refers to it; "
                             "move it before prepare()"));
    if (other.is_part_)
        throw UsageError(str(type_name(typeid(other)),
                             ": a part of a composed schedule cannot be moved: the composed "
                             "schedule refers to it; move the composed schedule instead"));
    optimizer_ = std::move(other.optimizer_);
    last_epoch_ = other.last_epoch_;
    step_count_ = other.step_count_;
    base_lrs_ = std::move(other.base_lrs_);
    last_lr_ = std::move(other.last_lr_);
}

Optimizer& Scheduler::optimizer() {
    if (!optimizer_)
        throw UsageError(str(type_name(typeid(*this)),
                             ": the schedule or its optimizer was moved to another object; use "
                             "that one"));
    if (*optimizer_ == nullptr)
        throw UsageError(str(type_name(typeid(*this)),
                             ": the optimizer was destroyed; keep it while the schedule is used"));
    return **optimizer_;
}

void Scheduler::step() {
    if (hooks_) return hooks_->step(*this);
    advance();
}

void Scheduler::advance() {
    optimizer();  // throws if it was destroyed
    before_access();
    set_rates(last_epoch_ + 1);
    set_position(last_epoch_ + 1, step_count_ + 1);
}

void Scheduler::set_hooks(std::shared_ptr<SchedulerHooks> hooks) {
    const auto before = std::exchange(hooks_, std::move(hooks));
    if (before && before != hooks_) before->detached(*this);
}

std::vector<ScheduleField> Scheduler::fields() { return {}; }

void Scheduler::set_base_lrs(std::vector<double> rates) { base_lrs_ = std::move(rates); }

void Scheduler::start() {
    starting_ = true;
    set_rates(0);
    starting_ = false;
    set_position(0, 1);
}

void Scheduler::restart() {
    if (restarts_from_base_lr()) {
        const std::vector<double>& base = base_lrs();
        for (std::size_t g = 0; g < optimizer().group_count(); ++g)
            optimizer().group(g).lr = base[g];
    }
    set_rates(0);
    set_position(0, 1);
}

void Scheduler::set_rates(std::int64_t epoch) {
    const std::vector<double>& base = base_lrs();
    for (std::size_t g = 0; g < optimizer().group_count(); ++g)
        apply(g, optimizer().group(g), base[g], epoch);
}

const std::vector<double>& Scheduler::base_lrs() {
    for (std::size_t g = base_lrs_.size(); g < optimizer().group_count(); ++g) {
        const GroupRef group = optimizer().group(g);
        if (!group.initial_lr) group.initial_lr = group.lr;
        base_lrs_.push_back(*group.initial_lr);
    }
    return base_lrs_;
}

void Scheduler::set_position(std::int64_t epoch, std::int64_t step_count) {
    last_epoch_ = epoch;
    step_count_ = step_count;
    last_lr_.clear();
    for (std::size_t g = 0; g < optimizer().group_count(); ++g)
        last_lr_.push_back(optimizer().group(g).lr);
}

Tree Scheduler::state_dict() const {
    before_access();
    return save();
}

void Scheduler::load_state_dict(const Tree& tree) {
    before_access();
    load(tree);
}

Tree Scheduler::save() const {
    Tree tree{
        {"last_epoch", last_epoch_}, {"_step_count", step_count_}, {"_last_lr", list_of(last_lr_)}};
    if (!base_lrs_.empty()) tree.set("base_lrs", list_of(base_lrs_));
    save_fields(tree);
    return tree;
}

void Scheduler::load(const Tree& tree) {
    const auto check_length = [&](const char* name, std::size_t saved, std::size_t own) {
        if (saved != own)
            throw ValueError(str(type_name(typeid(*this)), ": load_state_dict: ", name, " has ",
                                 saved, " values, but the optimizer of the schedule has ", own,
                                 own == 1 ? " group" : " groups"));
    };
    std::vector<double> last = numbers(tree["_last_lr"]), base;
    if (!base_lrs_.empty()) base = numbers(tree["base_lrs"]);
    check_length("_last_lr", last.size(), last_lr_.size());
    check_length("base_lrs", base.size(), base_lrs_.size());
    const std::int64_t epoch = tree["last_epoch"].integer();
    // PyTorch does not save the step count of some schedules. These schedules never restart, so the
    // count is computed from the epoch.
    const Tree* const steps = tree.find("_step_count");
    const std::int64_t count = steps != nullptr ? steps->integer() : epoch + 1;
    load_fields(tree);
    last_epoch_ = epoch;
    step_count_ = count;
    base_lrs_ = std::move(base);
    last_lr_ = std::move(last);
}

void Scheduler::save_fields(Tree& tree) const {
    // fields() returns pointers for both saving and loading, and is therefore not const.
    for (const ScheduleField& field : const_cast<Scheduler*>(this)->fields())
        tree.set(field.name, field.visit([](auto value) { return to_tree(value); }));
}

void Scheduler::load_fields(const Tree& tree) {
    std::vector<Write> writes;
    for (const ScheduleField& field : fields())
        if (const Tree* saved = tree.find(field.name)) try {
                writes.push_back(
                    field.visit([&](auto value) { return make_write(*saved, field, value); }));
            } catch (const ValueError& error) {
                throw ValueError(str(type_name(typeid(*this)), ": load_state_dict: ", field.name,
                                     ": ", error.what()));
            }
    for (const Write& write : writes) write();
}

FactorScheduler::FactorScheduler(const char* name, Optimizer& optimizer,
                                 std::vector<LrFactor> factors)
    : Scheduler(optimizer), factors_(std::move(factors)) {
    if (factors_.size() != optimizer.group_count())
        throw ValueError(str(name, ": needs one function per group: ", factors_.size(),
                             " functions, ", optimizer.group_count(), " groups"));
}

double FactorScheduler::factor(std::size_t group, std::int64_t epoch) const {
    // Groups that were added after construction use the last function.
    return factors_[std::min(group, factors_.size() - 1)](epoch);
}

Tree FactorScheduler::save() const {
    Tree tree = Scheduler::save();
    // PyTorch also saves this key, with a null for every function.
    tree.set("lr_lambdas", Tree::list(Tree::List(factors_.size())));
    return tree;
}

LambdaLR::LambdaLR(Optimizer& optimizer, const Factor& factor)
    : LambdaLR(optimizer, std::vector<Factor>(optimizer.group_count(), factor)) {}

LambdaLR::LambdaLR(Optimizer& optimizer, std::vector<Factor> factors)
    : FactorScheduler("LambdaLR", optimizer, std::move(factors)) {
    start();
}

void LambdaLR::apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) {
    group.lr = base_lr * factor(index, epoch);
}

}  // namespace axle::optim
