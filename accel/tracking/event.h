// Private to accel: serializes the protocol buffers of TensorBoard's event files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "accel/tracking/histogram.h"
#include "accel/tracking/image.h"
#include "core/tree/tree.h"

namespace axle::accel {

// --- tensorflow.Event; wall_time is in seconds since 1970

std::string version_event(double wall_time);
// Returns an event that starts or resumes a run at `step`. Readers ignore events of earlier files
// with this step or a later one.
std::string start_event(double wall_time, std::int64_t step);
// Returns an event with a value. `value` is the result of one of the functions below.
std::string summary_event(double wall_time, std::int64_t step, std::string_view value);

// --- tensorflow.Summary.Value

std::string scalar_value(std::string_view tag, double value);
// Returns a text. TensorBoard shows it as Markdown. Appends "/text_summary" to the tag.
std::string text_value(std::string_view tag, std::string_view text);
std::string histogram_value(std::string_view tag, const Histogram& histogram);
std::string image_value(std::string_view tag, const Image& image);
// Returns the hyperparameters of a run for the HParams tab. Nested maps are flattened: their keys
// are joined by "/". Numbers, tensors with one element, booleans and strings keep their type; null
// is left out, and other values are written as text. Times are in seconds since 1970.
std::string hparams_value(const Tree& hparams, double start_time);
// Returns a value that marks the run as finished.
std::string hparams_end_value(double end_time);

}  // namespace axle::accel
