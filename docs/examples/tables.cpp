// Reads tables from files, prepares them for fine-tuning, and streams files.
#include <filesystem>
#include <fstream>

#include <axle/axle.h>

using axle::Tree;
namespace data = axle::data;

namespace {

void check(bool holds) {
    if (!holds) throw std::logic_error("check failed");
}

void write_files() {
    std::ofstream csv("reviews.csv");
    csv << "text,label,stars\n";
    for (int i = 0; i < 20; ++i)
        csv << "\"A " << (i % 2 == 0 ? "good" : "bad")
            << ", "
               "\"\"short\"\""
            << " film\"," << (i % 2 == 0 ? "positive" : "negative") << ',' << i % 5 + 1 << '\n';
    for (const char* name : {"part_0.jsonl", "part_1.jsonl"}) {
        std::ofstream lines(name);
        for (int i = 0; i < 8; ++i)
            lines << R"({"prompt": "2 + )" << i << R"(", "tokens": [2, )" << i << "]}\n";
    }
}

void fine_tune() {
    std::int64_t rows = 0;
    // [read]
    const auto table = data::Table::from_csv("reviews.csv").class_encode_column("label");
    check(table.column_schema("label").class_names[1] == "positive");
    auto [train, test] =
        table.train_test_split({.test_size = 0.2, .seed = 42, .stratify_by_column = "label"});

    const data::ByteTokenizer tokenizer;
    const auto tokenize = [&](const Tree& row) {
        const std::vector<std::int64_t> ids = tokenizer.encode(row["text"].string());
        return Tree{{"input_ids", axle::tensor(ids, {std::ssize(ids)})}};
    };
    const auto tokens = train.map(tokenize, {.keep_in_memory = true, .remove_columns = {"text"}});
    data::DataLoader loader(tokens, {.batch_size = 4,
                                     .shuffle = true,
                                     .num_workers = 2,
                                     .collate_fn = data::padding_collate()});
    for (auto& batch : loader) {
        check(batch["input_ids"].dim() == 2 && batch["label"].dtype() == axle::i64);
        rows += batch["label"].size(0);
    }
    // [/read]
    check(rows == 16 && test.size() == 4);
}

void change() {
    // [change]
    const auto table =
        data::Table::from_csv("reviews.csv", {.types = {{"stars", data::ColumnType::number}}});
    const auto best = table.filter([](const Tree& row) { return row["stars"].number() > 4; })
                          .rename_column("label", "target")
                          .shuffle(42)
                          .with_tensors();
    check(best.size() == 4 && best.get(0)["stars"].dtype() == axle::f32);
    check(best.column_names() == std::vector<std::string>{"text", "target", "stars"});
    // [/change]
}

void stream() {
    std::int64_t rows = 0;
    // [stream]
    const auto files = data::stream_json({"part_0.jsonl", "part_1.jsonl"});
    data::DataLoader loader(files, {.batch_size = 4});
    for (auto& batch : loader) rows += static_cast<std::int64_t>(batch["prompt"].size());
    // [/stream]
    check(rows == 16);
}

}  // namespace

int main() {
    write_files();
    fine_tune();
    change();
    stream();
}
