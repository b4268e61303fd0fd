#include "dist/rendezvous/activity.h"

#include <cstring>

#include "core/files/file.h"
#include "core/text/text.h"
#include "dist/rendezvous/wire.h"
#include "kernels/error.h"

namespace axle::dist {

std::string name_of_collective(const CollectiveCall& call) {
    const std::string text = str(name_of(call.op), " #", call.sequence);
    return call.group == 0 ? text : str(text, " of group ", call.group);
}

void Activity::note(std::string_view text) { noted_ = printable(text.substr(0, kMaxActivity)); }

std::string Activity::text() const {
    if (noted_) return *noted_;
    if (sequence_ == 0) return "";
    return name_of_collective({.group = group_, .sequence = sequence_, .op = op_});
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
                        const std::string& activity) {
    return str(process.text(), " is frozen: no heartbeat for ", seconds_text(silence), ", ",
               activity.empty() ? "last in no collective" : "last in " + activity);
}

std::string seconds_text(std::chrono::nanoseconds time) {
    const double seconds = std::chrono::duration<double>(time).count();
    return format_number(seconds, std::chars_format::general, 2) + " s";
}

}  // namespace axle::dist
