// Tests chat templates, the tokens of documents and their packing. The recorded values come from
// tests/golden/record_instructions.py.
#include "data/instructions/documents.h"

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "data/loading/loader.h"
#include "data/loading/padding.h"
#include "data/tokenizers/pretrained_tokenizer.h"
#include "gmock/gmock.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle::data {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::StartsWith;
using tests::expect_error;
using TokenIds = std::vector<std::int64_t>;

const Tree& recorded_instructions() {
    static const Tree tree = from_json(read_file(AXLE_TESTS_DIR "/golden/instructions.json"));
    return tree;
}

PretrainedTokenizer instruction_tokenizer() {
    return PretrainedTokenizer::from_json(to_json(recorded_instructions()["tokenizer"]));
}

// Returns the elements of a list of integers or of a tensor.
TokenIds token_ids_of(const Tree& values) {
    TokenIds ids;
    if (values.is_tensor()) {
        for (const double one : values.tensor().to_vector())
            ids.push_back(static_cast<std::int64_t>(one));
        return ids;
    }
    for (const Tree& one : values.elements()) ids.push_back(one.integer());
    return ids;
}
TokenIds token_ids_of(const std::vector<bool>& flags) { return {flags.begin(), flags.end()}; }

std::vector<ChatMessage> chat_of(const Tree& list) {
    std::vector<ChatMessage> messages;
    for (const Tree& one : list.elements())
        messages.push_back({one["role"].string(), one["content"].string()});
    return messages;
}

TEST(ChatTemplate, FormatsChatsAsTransformersDoes) {
    const PretrainedTokenizer tokenizer = instruction_tokenizer();
    for (const Tree& chat : recorded_instructions()["chats"].elements()) {
        const auto format = chat_template_for(tokenizer, chat["format"].string());
        EXPECT_EQ(joined(format.render(chat_of(chat["messages"]))), chat["text"].string());
    }
    for (const Tree& chat : recorded_instructions()["prompts"].elements()) {
        const auto format = chat_template_for(tokenizer, chat["format"].string());
        EXPECT_EQ(joined(format.render(chat_of(chat["messages"]), true)), chat["text"].string());
    }
}

TEST(ChatTemplate, MarksTheTokensOfAnswersAsTrainingTemplatesDo) {
    const PretrainedTokenizer tokenizer = instruction_tokenizer();
    for (const Tree& chat : recorded_instructions()["chats"].elements()) {
        const auto format = chat_template_for(tokenizer, chat["format"].string());
        const auto document =
            encode_parts(tokenizer, format.render(chat_of(chat["messages"])), false);
        EXPECT_EQ(document.ids, token_ids_of(chat["ids"]));
        EXPECT_EQ(token_ids_of(document.is_answer), token_ids_of(chat["answers"]))
            << chat["text"].string();
    }
}

TEST(ChatTemplate, RejectsUnknownNamesAndRoles) {
    expect_error<ValueError>({"ChatTemplate: the name must be chatml or llama3: 'alpaca'"},
                             [] { ChatTemplate::named("alpaca"); });
    const ChatMessage message{"human", "Hi"};
    expect_error<ValueError>({"ChatTemplate: the role of a message", "assistant or tool: 'human'"},
                             [&] {
                                 (void)ChatTemplate::named("chatml").render({&message, 1});
                             });
}

TEST(EncodeParts, MarksTheTokensOfCompletionsAsTrlDoes) {
    const PretrainedTokenizer tokenizer = instruction_tokenizer();
    ASSERT_GT(recorded_instructions()["completions"].size(), 10u);
    for (const Tree& row : recorded_instructions()["completions"].elements()) {
        const std::vector<TextPart> parts = {{row["prompt"].string(), false},
                                             {row["completion"].string(), true}};
        const auto document = encode_parts(tokenizer, parts, true);
        EXPECT_EQ(document.ids, token_ids_of(row["ids"]));
        EXPECT_EQ(token_ids_of(document.is_answer), token_ids_of(row["answers"])) << joined(parts);
    }
}

TEST(PackBestFit, PlacesDocumentsInTheRowsOfTrl) {
    for (const Tree& entry : recorded_instructions()["packing"].elements()) {
        std::vector<TokenIds> rows;
        for (const Tree& row : entry["rows"].elements()) rows.push_back(token_ids_of(row));
        EXPECT_EQ(pack_best_fit(token_ids_of(entry["lengths"]), entry["row_length"].integer()),
                  rows);
    }
    const TokenIds lengths = {3, 5};
    expect_error<ValueError>({"pack_best_fit: lengths must be in [1, 4]", "5"},
                             [&] { pack_best_fit(lengths, 4); });
}

// --- datasets of bytes

Table table_of(const std::vector<std::string>& list) {
    std::vector<Tree> rows;
    for (const std::string& text : list) rows.push_back(Tree{{"text", text}});
    return Table::from_list(rows);
}

TEST(DocumentDataset, LabelsTheAnswerOfAPromptAndTheTokenThatEndsIt) {
    const Table table = Table::from_list({Tree{{"prompt", "ab"}, {"completion", "xy"}}});
    const DocumentDataset rows(table, ByteTokenizer(), {.eos_token_id = 0});
    ASSERT_EQ(rows.size(), 1);
    EXPECT_THAT(token_ids_of(rows.get(0)["input_ids"]), ElementsAre('a', 'b', 'x', 'y', 0));
    EXPECT_THAT(token_ids_of(rows.get(0)["labels"]), ElementsAre(-100, 'x', 'y', 0, -100));
    EXPECT_THAT(rows.prompt(0), ElementsAre('a', 'b'));
    const DocumentDataset all(table, ByteTokenizer(), {.answers_only = false});
    EXPECT_THAT(token_ids_of(all.get(0)["labels"]), ElementsAre('b', 'x', 'y', -100));
    EXPECT_THAT(all.prompt(0), ElementsAre('a', 'b'));
}

TEST(DocumentDataset, TruncatesDocumentsAndLeavesOutThoseWithoutATrainedToken) {
    const Table table = Table::from_list({Tree{{"prompt", "abcdef"}, {"completion", "x"}},
                                          Tree{{"prompt", "abc"}, {"completion", "xyz"}}});
    const DocumentDataset rows(table, ByteTokenizer(), {.max_length = 5});
    EXPECT_EQ(rows.left_out(), 1);
    EXPECT_EQ(rows.num_documents(), 1);
    EXPECT_THAT(token_ids_of(rows.get(0)["input_ids"]), ElementsAre('a', 'b', 'c', 'x', 'y'));
    EXPECT_THAT(token_ids_of(rows.get(0)["labels"]), ElementsAre(-100, -100, 'x', 'y', -100));
    expect_error<ValueError>(
        {"DocumentDataset: none of the 2 documents has a token of an answer in its first 3"},
        [&] { DocumentDataset(table, ByteTokenizer(), {.max_length = 3}); });
}

TEST(DocumentDataset, PacksWholeDocumentsWithTheirPositions) {
    const DocumentDataset rows(
        table_of({"ab", "cdefg", "hi"}), ByteTokenizer(),
        {.max_length = 7, .packing = Packing::best_fit, .pad_token_id = '_'});
    ASSERT_EQ(rows.size(), 2);
    EXPECT_EQ(rows.num_tokens(), 9);
    const Tree full = rows.get(0), half = rows.get(1);
    EXPECT_THAT(token_ids_of(full["input_ids"]), ElementsAre('c', 'd', 'e', 'f', 'g', 'a', 'b'));
    EXPECT_THAT(token_ids_of(full["labels"]), ElementsAre('d', 'e', 'f', 'g', -100, 'b', -100));
    EXPECT_THAT(token_ids_of(full["position_ids"]), ElementsAre(0, 1, 2, 3, 4, 0, 1));
    EXPECT_THAT(token_ids_of(half["input_ids"]), ElementsAre('h', 'i', '_', '_', '_', '_', '_'));
    EXPECT_THAT(token_ids_of(half["labels"]), ElementsAre('i', -100, -100, -100, -100, -100, -100));
    EXPECT_THAT(token_ids_of(half["position_ids"]), ElementsAre(0, 1, 0, 1, 2, 3, 4));
}

TEST(DocumentDataset, CutsConcatenatedDocumentsIntoRows) {
    const DocumentDataset rows(
        table_of({"abc", "defg"}), ByteTokenizer(),
        {.eos_token_id = 0, .max_length = 4, .packing = Packing::wrapped, .pad_token_id = '_'});
    ASSERT_EQ(rows.size(), 2);
    EXPECT_THAT(token_ids_of(rows.get(0)["input_ids"]), ElementsAre('a', 'b', 'c', 0));
    EXPECT_THAT(token_ids_of(rows.get(0)["labels"]), ElementsAre('b', 'c', 0, 'd'));
    EXPECT_THAT(token_ids_of(rows.get(1)["input_ids"]), ElementsAre('d', 'e', 'f', 'g'));
    EXPECT_THAT(token_ids_of(rows.get(1)["labels"]), ElementsAre('e', 'f', 'g', 0));
    EXPECT_FALSE(rows.get(0).contains("position_ids"));
}

TEST(DocumentDataset, LeavesOutWrappedRowsWithoutATrainedLabel) {
    const Table table = Table::from_list({Tree{{"prompt", "abcdefgh"}, {"completion", "x"}}});
    const DocumentDataset rows(table, ByteTokenizer(),
                               {.max_length = 3, .packing = Packing::wrapped});
    ASSERT_EQ(rows.size(), 1);
    EXPECT_THAT(token_ids_of(rows.get(0)["input_ids"]), ElementsAre('g', 'h', 'x'));
    EXPECT_THAT(token_ids_of(rows.get(0)["labels"]), ElementsAre(-100, 'x', -100));
}

TEST(DocumentDataset, GivesALoaderPaddedBatchesAfterTheTableIsGone) {
    auto table = std::make_unique<Table>(table_of({"abc", "de"}));
    auto rows = std::make_unique<DocumentDataset>(*table, ByteTokenizer());
    DataLoader loader(
        *rows,
        {.batch_size = 2, .collate_fn = padding_collate({.padding_values = {{"labels", -100}}})});
    table.reset();
    rows.reset();
    for (auto& batch : loader) {
        EXPECT_THAT(token_ids_of(batch["input_ids"]),
                    ElementsAreArray(TokenIds{'a', 'b', 'c', 'd', 'e', 0}));
        EXPECT_THAT(token_ids_of(batch["labels"]),
                    ElementsAreArray(TokenIds{'b', 'c', -100, 'e', -100, -100}));
    }
}

TEST(DocumentDataset, NamesTheFileAndTheLineOfARowThatItCannotRead) {
    const tests::TemporaryFolder folder;
    const std::string path = folder / "chats.jsonl";
    const auto rejects = [&](const std::string& row, const std::string& words) {
        std::ofstream(path) << R"({"messages": [{"role": "assistant", "content": "a"}]})"
                            << "\n\n"
                            << row << '\n';
        const Table table = Table::from_json(path);
        try {
            // A view has the rows in another order.
            const DocumentDataset documents(table.select({1, 0}), ByteTokenizer());
            ADD_FAILURE() << row << " is accepted";
        } catch (const FileError& error) {
            EXPECT_THAT(error.what(), StartsWith(path + ": line 3: "));
            EXPECT_THAT(error.what(), HasSubstr(words));
        }
    };
    rejects(R"({"messages": []})", "'messages' must be a list of messages: []");
    rejects(R"({"other": 1})", "'messages' must be a list of messages: null");
    rejects(R"({"messages": [{"role": "user"}]})", "an object with 'role' and 'content'");
    rejects(R"({"messages": [{"role": "gpt", "content": "a"}]})", "assistant or tool: 'gpt'");
    rejects(R"({"messages": [{"role": "user", "content": ["a"]}]})", "'content' must be text");
    rejects(R"({"messages": [{"role": "user", "content": "a"}]})", "with the role assistant");
    rejects(R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": 1}]}]})",
            "'tool_calls'");
}

TEST(DocumentDataset, RejectsTablesWithoutItsColumnsAndInvalidOptions) {
    const Table table = Table::from_list({Tree{{"prompt", "a"}, {"answer", "b"}}});
    expect_error<ValueError>(
        {"DocumentDataset: the rows must have the column messages",
         "text column 'body': they have prompt, answer"},
        [&] { DocumentDataset(table, ByteTokenizer(), {.text_column = "body"}); });
    expect_error<ValueError>({"DocumentDataset: max_length must be in [2, 2^30]: it is 1"}, [] {
        DocumentDataset(table_of({"ab"}), ByteTokenizer(), {.max_length = 1});
    });
    expect_error<ValueError>({"DocumentDataset: eos_token_id must be in [0, 2^32): it is -1"}, [] {
        DocumentDataset(table_of({"ab"}), ByteTokenizer(), {.eos_token_id = -1});
    });
    const DocumentDataset rows(table_of({"ab"}), ByteTokenizer());
    expect_error<IndexError>({"DocumentDataset: index 1 is out of range for 1 samples"},
                             [&] { (void)rows.get(1); });
    expect_error<IndexError>({"DocumentDataset: document 1 is out of range"},
                             [&] { (void)rows.prompt(1); });
}

}  // namespace
}  // namespace axle::data
