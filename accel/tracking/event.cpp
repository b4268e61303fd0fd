// Field numbers come from tensorflow/core/util/event.proto, tensorflow/core/framework/
// {summary,tensor,tensor_shape}.proto, tensorboard/plugins/hparams/plugin_data.proto and
// google/protobuf/struct.proto. As in proto3, fields are written in numeric order, and fields with
// the value 0 are not written.
#include "accel/tracking/event.h"

#include <protozero/pbf_writer.hpp>

#include "accel/tracking/png.h"
#include "accel/tracking/tracker.h"
#include "core/text/text.h"

namespace axle::accel {
namespace {

using protozero::pbf_writer;

template <class F>
std::string message(F&& fill) {
    std::string bytes;
    pbf_writer writer(bytes);
    fill(writer);
    return bytes;
}

template <class F>
std::string event(double wall_time, std::int64_t step, F&& fill) {
    return message([&](pbf_writer& event) {
        event.add_double(1, wall_time);
        if (step != 0) event.add_int64(2, step);
        fill(event);
    });
}

// Returns SummaryMetadata that assigns a value to a plugin.
std::string metadata(std::string_view plugin, const std::string& content) {
    return message([&](pbf_writer& metadata) {
        pbf_writer plugin_data(metadata, 1);
        plugin_data.add_string(1, plugin.data(), plugin.size());
        if (!content.empty()) plugin_data.add_bytes(2, content);
    });
}

// Adds text after replacing invalid UTF-8, because some readers reject records that contain it.
void add_text(pbf_writer& out, protozero::pbf_tag_type field, std::string_view text) {
    out.add_string(field, replace_invalid_utf8(text));
}

std::string struct_value(const Tree& value) {
    return message([&](pbf_writer& out) {
        if (value.is_number())
            out.add_double(2, value.number());
        else if (value.is_boolean())
            out.add_bool(4, value.boolean());
        else
            add_text(out, 3, value.is_string() ? value.string() : str(value));
    });
}

std::string hparams_plugin_value(std::string_view tag, protozero::pbf_tag_type field,
                                 const std::string& data) {
    return message([&](pbf_writer& value) {
        add_text(value, 1, tag);
        value.add_message(9, metadata("hparams", message([&](pbf_writer& plugin) {
                                          plugin.add_message(field, data);
                                      })));
    });
}

}  // namespace

std::string version_event(double wall_time) {
    return event(wall_time, 0, [](pbf_writer& event) { event.add_string(3, "brain.Event:2"); });
}

std::string start_event(double wall_time, std::int64_t step) {
    return event(wall_time, step, [](pbf_writer& event) {
        pbf_writer session_log(event, 7);
        session_log.add_enum(1, 1);  // SessionLog.START
    });
}

std::string summary_event(double wall_time, std::int64_t step, std::string_view value) {
    return event(wall_time, step, [&](pbf_writer& event) {
        pbf_writer summary(event, 5);
        summary.add_message(1, value.data(), value.size());
    });
}

std::string scalar_value(std::string_view tag, double value) {
    return message([&](pbf_writer& out) {
        add_text(out, 1, tag);
        out.add_float(2, static_cast<float>(value));
    });
}

std::string text_value(std::string_view tag, std::string_view text) {
    return message([&](pbf_writer& value) {
        add_text(value, 1, std::string(tag) + "/text_summary");
        {
            pbf_writer tensor(value, 8);
            tensor.add_enum(1, 7);  // dtype: DT_STRING
            {
                pbf_writer shape(tensor, 2);
                pbf_writer dim(shape, 2);
                dim.add_int64(1, 1);
            }
            tensor.add_bytes(8, replace_invalid_utf8(text));
        }
        value.add_message(9, metadata("text", ""));
    });
}

std::string histogram_value(std::string_view tag, const Histogram& histogram) {
    return message([&](pbf_writer& value) {
        add_text(value, 1, tag);
        pbf_writer out(value, 5);
        const double fields[] = {histogram.min, histogram.max, histogram.num, histogram.sum,
                                 histogram.sum_squares};
        protozero::pbf_tag_type number = 0;
        for (const double field : fields)
            if (++number; field != 0) out.add_double(number, field);
        out.add_packed_double(6, histogram.limits.begin(), histogram.limits.end());
        out.add_packed_double(7, histogram.counts.begin(), histogram.counts.end());
    });
}

std::string image_value(std::string_view tag, const Image& image) {
    const std::string png = encode_png(image.pixels, image.height, image.width, image.channels);
    return message([&](pbf_writer& value) {
        add_text(value, 1, tag);
        pbf_writer out(value, 4);
        out.add_int32(1, static_cast<std::int32_t>(image.height));
        out.add_int32(2, static_cast<std::int32_t>(image.width));
        out.add_int32(3, image.channels);
        out.add_bytes(4, png);
    });
}

std::string hparams_value(const Tree& hparams, double start_time) {
    const std::string info = message([&](pbf_writer& out) {
        for (const auto& [key, value] : flattened(hparams)) {
            if (value.is_null()) continue;
            pbf_writer entry(out, 1);
            add_text(entry, 1, key);
            entry.add_message(2, struct_value(value));
        }
        out.add_double(5, start_time);
    });
    return hparams_plugin_value("_hparams_/session_start_info", 3, info);
}

std::string hparams_end_value(double end_time) {
    const std::string info = message([&](pbf_writer& out) {
        out.add_enum(1, 1);  // status: STATUS_SUCCESS
        out.add_double(2, end_time);
    });
    return hparams_plugin_value("_hparams_/session_end_info", 4, info);
}

}  // namespace axle::accel
