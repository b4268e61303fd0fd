#include "dist/rendezvous/activity.h"

#include <cstring>
#include <utility>

#include "core/files/file.h"
#include "core/text/text.h"
#include "kernels/error.h"

namespace axle::dist {

std::string name_of_collective(const CollectiveCall& call) {
    const std::string text = str(name_of(call.op), " #", call.sequence);
    return call.group == 0 ? text : str(text, " of group ", call.group);
}

void Activity::announce_call(const CollectiveCall& call) {
    op_ = call.op;
    group_ = call.group;
    sequence_ = call.sequence;
    note_.reset();
}

void Activity::note(std::string_view text) { note_ = printable(text.substr(0, kMaxActivity)); }

Heartbeat Activity::heartbeat() const {
    return {.op = op_,
            .group = group_,
            .sequence = sequence_,
            .has_note = note_.has_value(),
            .note = note_.value_or("")};
}

void Activity::update(const Heartbeat& heartbeat) {
    op_ = heartbeat.op;
    group_ = heartbeat.group;
    sequence_ = heartbeat.sequence;
    note_.reset();
    if (heartbeat.has_note) note(heartbeat.note);
}

std::string Activity::collective() const {
    if (sequence_ == 0) return "";
    return name_of_collective({.group = group_, .sequence = sequence_, .op = op_});
}

std::string Activity::text() const { return note_ ? *note_ : collective(); }

std::string Activity::history() const {
    const std::string last = collective();
    const bool adds = note_ && !note_->empty() && *note_ != last;
    return str(last.empty() ? "it has called no collective" : "its last collective was ", last,
               adds ? "; its activity was " : "", adds ? *note_ : "");
}

std::string Process::text() const {
    return str("rank ", rank, " (pid ", pid, ", host ", printable(host), ')');
}

std::string cause_text(const ChildEnd& end) {
    if (end.signal == 0) return str("exited with code ", end.exit_code);
    const char* name = ::sigdescr_np(end.signal);
    return str("signal ", end.signal, " (", name == nullptr ? "?" : name, ')');
}

std::string death_text(const Process& process, const std::optional<ChildEnd>& end,
                       const std::string& activity) {
    std::string text = process.text() + " died";
    if (end) text += ": " + cause_text(*end);
    return activity.empty() ? text : str(text, " during ", activity);
}

std::string frozen_text(const Process& process, std::chrono::nanoseconds silence,
                        const Activity& activity) {
    return str(process.text(), " sent no heartbeat for ", seconds_text(silence), "; ",
               activity.history());
}

Failure failure_of(const Process& process, bool is_running, const Activity& activity,
                   std::string text) {
    return {.text = std::move(text),
            .rank = process.rank,
            .pid = process.pid,
            .host = process.host,
            .is_running = is_running,
            .op = activity.op(),
            .sequence = activity.sequence()};
}

std::string seconds_text(std::chrono::nanoseconds time) {
    const double seconds = std::chrono::duration<double>(time).count();
    return format_number(seconds, std::chars_format::general, 2) + " s";
}

}  // namespace axle::dist
